"""Seconds of a round in each stage, timed in programs of their own.

The task acts for a few rounds in this thread. What a round learns is then done again, each stage in
one program that makes all of the round's draws, as the run's own program does: so no call between
stages is counted. The environment's steps are timed alone too.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rondel.execution.backends import registry
from rondel.execution.backends.lowering import lower
from rondel.execution.loop.ring import Ring
from rondel.execution.loop.sync_loop import run_round
from rondel.execution.stages import initial, learning
from rondel.execution.stages.labelling import compute_label
from rondel.execution.stages.task import Task, stage_boundary
from rondel.plan.parser import parse
from rondel.plan.pieces import ORDER
from rondel.run.setup.options import block_for
from rondel.run.setup.prepare import Setup, prepare
from rondel.spaces import zeros
from rondel.types import Env

WIDER = 4  # times the rows
_CUT = parse("actor | learner")
_ROUNDS = 5  # that are timed at most, after one that compiles
_SECONDS = 2.0  # that they may take of each program, but for the last of them


def wider(setup: Setup, **brought: Any) -> Setup:
    """A run with four times the rows in every stage, in this thread.

    Where batches have a size of their own, as those of a replay have, lanes alone would leave the
    gradient with as many rows as before, or make more gradient steps.
    """
    options, config = setup.options, setup.config
    same = ("deadline", "normalise_observations", "scale_rewards")
    fields: dict[str, Any] = {name: getattr(options, name) for name in same}
    fields |= {"lanes": WIDER * options.lanes, "plan": "all", "on": registry.IN_DRIVER}
    if options.block != block_for(options.lanes):  # else as many lanes act in one call as suits
        fields["block"] = options.block
    changed = {"batch": WIDER, "updates_per_step": 1 / WIDER}
    fields |= {k: x * getattr(config, k) for k, x in changed.items() if hasattr(config, k)}
    if (network := brought.get("network")) is not None:
        fields["network"] = network
    name, env = brought.get("algorithm") or setup.name, setup.task.env
    return prepare(name, env, seed=setup.task.seed, config=config, tuned=False, fields=fields)


def time_stages(task: Task) -> dict[str, float]:
    """Seconds of a round in each stage."""
    ring = Ring(task, _CUT, lowering=lower(task, _CUT, in_driver=True, devices=1))
    try:
        run_round(ring)  # it compiles
        began = time.monotonic()
        for _ in range(task.algorithm.memory.warmup_rounds):
            run_round(ring)
            # what memory holds by then takes as long to draw from
            if time.monotonic() - began > _SECONDS:
                break
        learner = ring.update[0].snapshot("learner", "memory")
        weights, began = ring.acting(), time.monotonic()
        acted: list[dict[str, float]] = []
        while len(acted) < _ROUNDS and time.monotonic() - began < _SECONDS:
            before = _acting_so_far(ring)
            items, _, _ = ring.policy[0].produce(weights, ring.round)
            after = _acting_so_far(ring)
            acted.append({stage: after[stage] - before.get(stage, 0.0) for stage in after})
    finally:
        ring.close()
    # others on the machine only ever add to it
    spent = {stage: min(each[stage] for each in acted) for stage in acted[0]}
    actor = spent.pop("actor", 0.0)
    if isinstance(task.env, Env):
        spent["env"] = min(_time_env(task, task.env), actor)
        spent["policy"] = actor - spent["env"]
    else:  # what an actor does besides is the policy's
        spent["policy"] = spent.get("policy", 0.0) + actor
    spent |= _time_learning(task, ring.round, items, **learner)
    return {name: spent[name] for name in ORDER if name in spent}


def _acting_so_far(ring: Ring) -> dict[str, float]:
    """Seconds that acting has taken so far, by stage."""
    _, told = ring.timing_reports()[0][0]
    found: dict[str, float] = {}
    for one in told.spent:
        if one.stage in ("env", "policy", "actor"):
            found[one.stage] = found.get(one.stage, 0.0) + one.seconds
    return found


def _time_learning(
    task: Task, round: Any, items: Any, learner: Any, memory: Any
) -> dict[str, float]:
    """Seconds of a round in each stage of the learner."""
    algorithm, seed = task.algorithm, jnp.uint32(task.seed)
    draws = np.int32(algorithm.memory.draws)

    def draw(memory: Any, j: Any) -> Any:
        return learning.compute_draw(task, seed, memory, round, j)

    def label(learner: Any, batch: Any, j: Any) -> Any:
        return compute_label(task, seed, algorithm.learning(learner), batch, round, j)

    def gradient(learner: Any, batch: Any, j: Any) -> Any:
        return learning.compute_gradient(task, seed, algorithm.learning(learner), batch, round, j)

    memory = jax.jit(partial(learning.compute_add, task, seed))(memory, items, round)
    batch, ticket = jax.jit(draw)(memory, 0)
    labelled = jax.jit(label)(learner, batch, 0)
    feedback, contribution = jax.jit(gradient)(learner, labelled, 0)
    ticket, feedback, grads = jax.tree.map(jnp.asarray, (ticket, feedback, contribution.grads))

    def remember(memory: Any, draws: Any) -> Any:
        def one(j: Any, memory: Any) -> Any:
            _, _, memory = stage_boundary((*draw(memory, j), memory))
            return algorithm.memory.rank(memory, ticket, feedback)

        return lax.fori_loop(0, draws, one, learning.compute_add(task, seed, memory, items, round))

    def make(what: Any, batch: Any, known: tuple[Any, Any], draws: Any) -> Any:
        def one(j: Any, known: tuple[Any, Any]) -> Any:  # each needs the one before
            learner, _, made = stage_boundary((*known, what(known[0], batch, j)))
            return learner, _first(made)

        return lax.fori_loop(0, draws, one, known)

    def update(learner: Any, draws: Any) -> Any:
        return lax.fori_loop(
            0, draws, lambda _, x: algorithm.update(x, stage_boundary(grads)), learner
        )

    known = learner, jnp.float32(0)
    spent = {
        "memory": _fastest(jax.jit(remember, donate_argnums=0), memory, draws),
        "gradient": _fastest(jax.jit(partial(make, gradient, labelled)), known, draws),
        "update": _fastest(jax.jit(update), learner, draws),
    }
    if algorithm.label is not None:
        spent["label"] = _fastest(jax.jit(partial(make, label, batch)), known, draws)
    return spent


def _first(tree: Any) -> Any:
    """A number that depends on all of a tree, as long as a boundary holds that together."""
    return jax.tree.leaves(tree)[0].ravel()[0].astype(jnp.float32)


def _fastest(program: Any, state: Any, times: Any) -> float:
    """Seconds of `state = program(state, times)`: the fastest of a few calls."""
    seconds: list[float] = []
    state = jax.block_until_ready(program(state, times))  # type: ignore[no-untyped-call]
    began = time.monotonic()  # the first has compiled
    while len(seconds) < _ROUNDS and time.monotonic() - began < _SECONDS:
        start = time.perf_counter()
        state = jax.block_until_ready(program(state, times))  # type: ignore[no-untyped-call]
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _time_env(task: Task, env: Env) -> float:
    """Seconds of a round's environment steps, all with the action zero."""
    lane = np.arange(task.lanes, dtype=np.int32)
    state, _ = initial.episode_starter(task)(np.uint32(task.seed), lane)
    action = jax.tree.map(jnp.asarray, zeros(env.spec.action, task.lanes))

    @jax.jit
    def roll(state: Any) -> Any:
        def one(state: Any, _: Any) -> Any:
            state, step = env.step(state, action)
            return state, (step.obs, step.reward)

        return lax.scan(one, state, length=task.algorithm.rollout)

    seconds = _fastest(lambda known, _: roll(known[0]), (state, None), None)
    if env.close is not None:
        env.close(state)
    return seconds
