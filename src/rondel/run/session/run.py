"""A run: a ring with limits, to be stepped through, evaluated and saved, and its `load`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rondel.envs.guard.guarded_env import with_deadline
from rondel.errors import RondelError, at_least
from rondel.execution.backends.protocol import Backend
from rondel.execution.backends.registry import IN_DRIVER, BackendOptions, find
from rondel.execution.loop.ring import Ring
from rondel.execution.loop.rounds import Report
from rondel.execution.loop.sync_loop import Limits, run_rounds
from rondel.execution.stages import episode_stats
from rondel.plan.resources import resources_for
from rondel.run.policy.evaluation import Evaluation, Evaluator
from rondel.run.policy.policy import Policy
from rondel.run.setup.prepare import Setup
from rondel.run.storage import checkpoint, locate, run_folder
from rondel.run.storage.run_folder import SavedRun
from rondel.types import Tree

OTHER_MACHINE = "XLA had other flags or threads before: last digits may differ."


def create_backend(setup: Setup) -> Backend:
    """The backend on which the copies of a run's plan run; it imports what it needs."""
    options = setup.options
    resources = resources_for(setup.plan, options.resources) if options.resources else None
    given = BackendOptions(options.deadline, options.restarts, resources, options.address)
    return find(options.on).create(given)


class Run:
    """A training run. Iterate over it to take its rounds one by one: each gives a `Report`."""

    def __init__(
        self, setup: Setup, limits: Limits, path: Path | None = None, backend: Backend | None = None
    ) -> None:
        self.setup, self.limits, self.path = setup, limits, path
        backend = backend or create_backend(setup)
        self.ring = Ring(setup.task, setup.plan, backend, setup.lowering)
        self._asked = itertools.count()
        self.eval_episodes = 100  # greedy episodes of each evaluation; there is one at the end
        self.eval_every = 0  # steps between evaluations during training; 0 for none
        self.evaluation: Evaluation | None = None  # the one at the end
        self.checkpoint: Path | None = None  # the newest in its folder
        self.at_a_time = 1  # seeds that train beside each other and share the machine, with it
        self.notes: list[str] = []  # what its user should know, such as of a loaded checkpoint
        self.result: dict[str, Any] = {}  # what `train` says at the end

    def __iter__(self) -> Iterator[Report]:
        return self.rounds(at_a_time=1)

    def rounds(self, at_a_time: int | None = None) -> Iterator[Report]:
        """The rounds up to the limits, several per call where the ring is fused."""
        return run_rounds(self.ring, self.limits, at_a_time, self.advice)

    @property
    def steps(self) -> int:
        """Transitions so far, without the steps that only reset."""
        return self.ring.steps

    @property
    def episodes(self) -> int:
        """Episodes that have ended so far."""
        return int(self.ring.recent.ended)

    @property
    def return_mean(self) -> float | None:
        """Mean return of the last 100 episodes of training; None before the first ends."""
        return float(episode_stats.means(self.ring.recent)[0]) if self.episodes else None

    @property
    def state(self) -> Tree:
        """The learner's state."""
        return self.ring.learner()

    @property
    def policy(self) -> Policy:
        """The policy learned so far."""
        task = self.setup.task
        return Policy(task.algorithm, task.env.spec, self.ring.acting(), self._asked)

    def evaluate(self, episodes: int = 100, seed: int | None = None) -> Evaluation:
        """Greedy episodes in fresh environments."""
        at_least(1, episodes=episodes)
        task = self.setup.task
        seed = task.seed if seed is None else seed
        world = with_deadline(task.env, self.setup.options.deadline)
        return Evaluator(task.algorithm, world, episodes).play(self.ring.acting(), seed)

    def save(self, folder: str | os.PathLike[str] | None = None) -> Path:
        """Write a checkpoint into the run's folder, or into another."""
        where = Path(folder) if folder else self.path
        if where is None:
            raise RondelError("This run has no folder: name one, run.save(folder).")
        meta = run_folder.run_metadata(self.setup, self.limits)
        ring = self.ring
        meta |= {"round": ring.round, "steps": ring.steps, "in_flight": len(ring.pending)}
        meta |= {"eval_episodes": self.eval_episodes, "eval_every": self.eval_every}
        saved = checkpoint.save(where, ring.tree(), ring.stored(), meta)
        if where == self.path:
            self.checkpoint = saved
        return saved

    def restore(self, path: Path, with_memory: bool = True) -> None:
        """Restore a checkpoint; the memory stays empty if it is gone or left out."""
        saved = run_folder.read(path)
        empty = self.ring.stored()
        like = self.ring.tree_like(saved.in_flight)
        state, memory, _ = checkpoint.load(path, like, empty if with_memory else None)
        if memory is None:
            gone = "is gone" if with_memory else "was left out"
            self.notes.append(f"The memory of this checkpoint {gone}: it starts empty.")
            memory = empty
        state, memory = jax.tree.map(jnp.array, (state, memory))
        self.ring.restore(state, memory, saved.round, saved.steps)
        self.eval_episodes, self.eval_every = saved.eval_episodes, saved.eval_every
        self.checkpoint = path

    def close(self) -> None:
        """End what runs elsewhere, and close the environments."""
        self.ring.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:  # the weights stay available after the end, wherever they were
                self.ring.weights = self.ring.acting()
        finally:
            self.close()

    def advice(self) -> str:
        """The last good checkpoint, and what to try when a loss is not finite."""
        try:
            good = locate.find_checkpoint(self.path) if self.path else None
        except RondelError:
            good = None
        saved = (
            f"The last good checkpoint is {good}." if good else "No checkpoint was saved before."
        )
        return (
            f"{saved} If observations and rewards are finite, use a smaller learning_rate, "
            "or scale_rewards."
        )


class Job(NamedTuple):
    """The run of one seed, before it is made."""

    setup: Setup
    limits: Limits
    path: Path
    eval_episodes: int
    eval_every: int
    checkpoint: Path | None = None  # which it goes on from
    round: int = 0  # of that
    notes: tuple[str, ...] = ()

    @property
    def seed(self) -> int:
        return self.setup.task.seed

    def run(self, backend: Any = None, with_memory: bool = True) -> Run:
        """The run itself, restored from its checkpoint."""
        run = Run(self.setup, self.limits, self.path, backend)
        try:
            if self.checkpoint:
                run.restore(self.checkpoint, with_memory)
        except BaseException:
            run.close()
            raise
        run.eval_episodes, run.eval_every = self.eval_episodes, self.eval_every
        run.notes += self.notes
        return run


def load(
    path: str | os.PathLike[str],
    *,
    algorithm: Any = None,
    env: Any = None,
    config: Any = None,
    network: Any = None,
    memory: bool = True,
    **placing: Any,
) -> Run:
    """Load a run from its newest checkpoint or a given one, to query, evaluate or continue it.

    It runs in this process, unless `placing` says otherwise: plan, lag, free, on, resources,
    address, deadline, restarts. Without `memory` the replay memory is not read.
    """
    placing = {"on": IN_DRIVER, "resources": None, "address": None} | placing
    found = locate.find_checkpoint(Path(path))
    before = run_folder.read(found)
    limits = resumed_limits(before)
    run_folder.check_lanes(found, before)
    setup = run_folder.setup_from(before, algorithm, env, config, network, placing)
    run_folder.check_learner(found, setup)
    evaluation = before.eval_episodes, before.eval_every
    notes = () if before.machine == setup.machine else (OTHER_MACHINE,)
    job = Job(setup, limits, run_folder.home_of(found), *evaluation, found, notes=notes)
    return job.run(with_memory=memory)


def check_limits(steps: int, until_return: float | None) -> Limits:
    """Stop after `steps`, or once the mean return reaches `until_return`."""
    goal = float("inf") if until_return is None else until_return
    check_integer("steps", steps, 1)
    if goal != goal:
        raise RondelError("until_return must be a number, got nan.")
    return Limits(steps, goal)


def resumed_limits(
    before: SavedRun, steps: int | None = None, until_return: float | None = None
) -> Limits:
    """The limits of a resumed run: as before, unless given."""
    goal = before.until_return if until_return is None else until_return
    return check_limits(before.total_steps if steps is None else steps, goal)


def check_evaluation(episodes: int, every: int) -> tuple[int, int]:
    """How many greedy episodes a run plays, and every how many steps besides at its end."""
    check_integer("eval_episodes", episodes, 0, 31)
    check_integer("eval_every", every, 0)
    if every and not episodes:
        raise RondelError(f"eval_every={every} needs eval_episodes of 1 or more, got 0.")
    return episodes, every


def resumed_evaluation(
    before: SavedRun, episodes: int | None = None, every: int | None = None
) -> tuple[int, int]:
    """The evaluations of a resumed run: as before, unless given."""
    episodes = before.eval_episodes if episodes is None else episodes
    if every is None:
        every = before.eval_every if episodes else 0
    return check_evaluation(episodes, every)


def check_integer(name: str, value: int, least: int, bits: int = 63) -> None:
    """Refuse what is not an integer from `least` on, below 2**bits."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**bits:
        raise RondelError(
            f"{name} must be an integer from {least} to 2**{bits} - 1, got {value!r:.40}."
        )
