"""A run's profile again, with the stages of fused programs measured apart.

The same task runs for a few rounds with the ring cut into actor, memory, gradient and update, each
a program of its own in this thread; the environment's steps are timed once more, alone.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rondel.errors import RondelError
from rondel.execution import experience
from rondel.execution.backends.inline import Inline
from rondel.execution.loop import one_round
from rondel.execution.meter import STARTING
from rondel.execution.ring import Ring
from rondel.execution.task import Task, keeps_state
from rondel.plan import ORDER, parse
from rondel.run import checkpoint, machine
from rondel.run.folder import PLACING, setup_from
from rondel.run.profile import TRACE, Profile, Share, read, write
from rondel.run.saved import read as read_checkpoint
from rondel.run.setup import prepare
from rondel.spaces import zeros


def profile(
    path: str | os.PathLike[str],
    *,
    apart: bool = True,
    trace: str | os.PathLike[str] | None = None,
) -> Profile:
    """What the run in a folder wrote down of where its time went.

    Stages that were one program are measured `apart`, if it has no environment, network or
    algorithm of your own. `trace` is a file for its newest events, which Perfetto and Chrome show.

    >>> print(rondel.profile("runs/a").table())
    """
    folder = Path(path)
    checkpoint.refuse_several(folder)
    found = read(folder)
    if trace is not None:
        _copy(folder / TRACE, Path(trace))
    if apart and found.apart is None and any(s.stage in _WHOLE for s in _busy(found)):
        try:
            found = _measured(found, folder)
        except RondelError as error:  # parts of it are its user's own, or its checkpoint is gone
            _log.warning("Its stages were not measured apart. %s", error)
            return found
        write(folder, found)
    return found


def _busy(found: Profile) -> list[Share]:
    return [share for piece in found.pieces for share in piece.shares if share.part > 0.1]


def _measured(found: Profile, folder: Path) -> Profile:
    """The same with the stages of its programs measured apart."""
    machine.settle()
    saved = read_checkpoint(checkpoint.find(folder))
    setup = setup_from(saved, None, None, None, None, {"on": "inline", "plan": "all"})
    spent = stages_apart(setup.task)
    total = sum(spent.values())
    shares = {stage: seconds / total for stage, seconds in spent.items()}
    more = None
    if any(share.stage == "all" for share in _busy(found)):
        wide = {"lanes": 4 * saved.options["lanes"], "plan": "all", "on": "inline"}
        fields = {k: v for k, v in saved.options.items() if v is not None} | (saved.config or {})
        fields = {k: v for k, v in fields.items() if k not in PLACING} | wide
        wider = prepare(saved.algorithm, saved.env, seed=saved.seed, tuned=False, fields=fields)
        more = sum(stages_apart(wider.task).values()) / total
    step = (spent["gradient"] + spent["update"]) / setup.task.algorithm.memory.draws
    return replace(found, apart=shares, more_lanes=more, one_step=step)


def _copy(source: Path, target: Path) -> None:
    try:
        target.write_bytes(source.read_bytes())
    except OSError as error:
        raise RondelError(f"{error.filename or target} failed: {error.strerror}.") from error


_WHOLE = ("actor", "learner", "all")  # stages that are one program
_log = logging.getLogger("rondel")
_CUT = parse("actor | memory | gradient | update")
_LABELLED = parse("actor | memory | label | gradient | update")
_ROUNDS = 5  # that are timed, after one that compiles
_SECONDS = 20.0  # that they may take


def stages_apart(task: Task) -> dict[str, float]:
    """Seconds of a round in each stage."""
    ring = Ring(task, _LABELLED if task.algorithm.label else _CUT, Inline(meshed=False))
    try:
        for _ in range(task.algorithm.memory.warmup_rounds + 1):
            one_round(ring)
        call, began = _call_seconds(ring.learner()), time.monotonic()
        rounds: list[dict[str, float]] = []
        while len(rounds) < _ROUNDS and time.monotonic() - began < _SECONDS:
            before = _by_stage(ring)
            one_round(ring)
            rounds.append(_between(before, _by_stage(ring), call))
    finally:
        ring.close()
    # others on the machine only ever add to it
    spent = {stage: min(each[stage] for each in rounds) for stage in rounds[0]}
    actor = spent.pop("actor", 0.0)
    if actor and keeps_state(task.env):
        spent["env"] = min(_steps_alone(task), actor)
        spent["policy"] = actor - spent["env"]
    return {name: spent[name] for name in ORDER if name in spent}


def _between(before: dict[str, Any], after: dict[str, Any], call: float) -> dict[str, float]:
    """Seconds of each stage, without what calls cost: inside one program there are none."""
    spent = {}
    for stage, (seconds, times) in after.items():
        earlier, fewer = before.get(stage, (0.0, 0))
        spent[stage] = max(0.0, seconds - earlier - (times - fewer) * call)
    return spent


def _by_stage(ring: Ring) -> dict[str, tuple[float, int]]:
    """Seconds and calls so far."""
    _, told = ring.metered()[0][0]
    found: dict[str, tuple[float, int]] = {}
    for one in told.spent:
        if one.kind != STARTING and one.stage in (*ORDER, "actor"):
            seconds, times = found.get(one.stage, (0.0, 0))
            found[one.stage] = seconds + one.seconds, times + one.times
    return found


def _call_seconds(tree: Any) -> float:
    """How long it takes to call a program that does next to nothing with so many arrays."""
    call = jax.jit(lambda tree: jax.tree.map(lambda x: x.ravel()[:1], tree))
    seconds = []
    for _ in range(20):
        began = time.perf_counter()
        jax.block_until_ready(call(tree))  # type: ignore[no-untyped-call]
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def _steps_alone(task: Task) -> float:
    """Seconds of a round's steps, all with the action zero."""
    lane = np.arange(task.lanes, dtype=np.int32)
    state, _ = experience.starter(task)(np.uint32(task.seed), lane)
    action = jax.tree.map(jnp.asarray, zeros(task.env.spec.action, task.lanes))
    step: Any = task.env.step  # type: ignore[union-attr]

    def roll(state: Any) -> Any:
        def one(state: Any, _: Any) -> Any:
            state, said = step(state, action)
            return state, (said.obs, said.reward)

        return lax.scan(one, state, length=task.algorithm.rollout)

    run = jax.jit(partial(roll))
    seconds = []
    for _ in range(1 + _ROUNDS):
        began = time.perf_counter()
        state, _ = jax.block_until_ready(run(state))  # type: ignore[no-untyped-call]
        seconds.append(time.perf_counter() - began)
    return min(seconds)
