"""One round of the whole ring over a traceable environment, as a pure function."""

from __future__ import annotations

from typing import NamedTuple

from rondel.execution.stages.acting import compute_rollout
from rondel.execution.stages.episode_stats import RecentEpisodes, means, push
from rondel.execution.stages.learning import compute_add, compute_learning
from rondel.execution.stages.peers import ALONE, Peers
from rondel.execution.stages.rows import Lanes, Outcome
from rondel.execution.stages.task import Task, stage_boundary
from rondel.types import Array, Step, Tree


class State(NamedTuple):
    """What lasts from round to round, except memory."""

    learner: Tree
    env: Tree
    step: Step
    lanes: Lanes
    recent: RecentEpisodes


class Round(NamedTuple):
    """The results of a round; stacked [n, ...] for several."""

    outcome: Outcome  # [B, T]
    metrics: dict[str, Array]
    means: tuple[Array, Array]  # return and length of the last 100 episodes


def compute_round(
    task: Task,
    seed: Array,
    state: State,
    memory: Tree,
    lane: Array,
    round: Array,
    others: Peers = ALONE,
    draws: Array | None = None,
) -> tuple[State, Tree, Round]:
    """Produce, add, absorb, learn; `draws` is by default the number that belongs to the round."""
    weights = stage_boundary(task.algorithm.acting(state.learner))
    env, step, lanes, produced = compute_rollout(
        task, seed, weights, state.env, state.step, state.lanes, lane, round
    )
    produced = stage_boundary(produced)
    memory = compute_add(task, seed, memory, produced.items, round, others.memory)
    summary, outcome = others.lanes((produced.summary, produced.outcome))
    learner = task.algorithm.absorb(state.learner, summary)
    learner, memory, metrics = compute_learning(task, seed, learner, memory, round, others, draws)
    recent = push(state.recent, outcome)
    state = State(learner, env, step, lanes, recent)
    return state, memory, Round(outcome, metrics, means(recent))
