"""A run's profile again, with the stages of fused programs measured apart.

The same task runs for a few rounds with the ring cut into actor, memory, gradient and update, each
a program of its own in this thread; the environment's steps are timed once more, alone.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from dataclasses import replace
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
from rondel.execution.task import Task
from rondel.plan import ORDER, parse
from rondel.run import checkpoint, machine
from rondel.run.files import put, refuse_to_replace
from rondel.run.folder import PLACING, setup_from
from rondel.run.kept import TRACE, read, write
from rondel.run.profile import Profile, Share
from rondel.run.saved import Saved
from rondel.run.saved import read as read_checkpoint
from rondel.run.setup import Setup, prepare
from rondel.spaces import zeros
from rondel.types import Env


def profile(
    path: str | os.PathLike[str],
    *,
    apart: bool = True,
    trace: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> Profile:
    """What the run in a folder wrote down of where its time went.

    Stages that were one program are measured `apart`, if it has no environment, network or
    algorithm of your own. `trace` is a file for its newest events, which Perfetto and Chrome show;
    one that is there stays, but for `overwrite`.

    >>> print(rondel.profile("runs/a").table())
    """
    folder = Path(path)
    checkpoint.refuse_file(folder)
    checkpoint.refuse_several(folder)
    found = read(folder)
    if trace is not None:
        _copy(folder / TRACE, Path(trace), overwrite)
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
        with suppress(RondelError):  # what is wider may not fit into memory
            more = sum(stages_apart(wider(saved).task).values()) / total
    step = (spent["gradient"] + spent["update"]) / setup.task.algorithm.memory.draws
    return replace(found, apart=shares, more_rows=more, one_step=step)


def _copy(source: Path, target: Path, overwrite: bool) -> None:
    if target.suffix != ".json":
        raise RondelError(f"{target} can't be a trace: it is JSON, so name a file that ends so.")
    refuse_to_replace(target, overwrite)
    try:
        events = source.read_bytes()
    except OSError as error:
        raise RondelError(
            f"{source} can't be read: {error.strerror}. A run writes it at its end, and at each "
            "checkpoint."
        ) from error
    try:
        put(target, events)
    except OSError as error:
        raise RondelError(
            f"Writing {target} failed: {error.strerror}. Make space there, make the folder "
            "writable, or choose another."
        ) from error


def wider(saved: Saved) -> Setup:
    """The same run with four times the rows in every stage, in this thread.

    Where batches have a size of their own, as those of a replay have, lanes alone would leave the
    gradient with as many rows as before, or make more gradient steps.
    """
    fields = {k: v for k, v in saved.options.items() if v is not None} | (saved.config or {})
    fields = {k: v for k, v in fields.items() if k not in PLACING}
    grown = {name: _WIDER * fields[name] for name in ("lanes", "batch") if name in fields}
    fewer = {name: fields[name] / _WIDER for name in ("updates_per_step",) if name in fields}
    fields |= grown | fewer | {"plan": "all", "on": "inline"}
    return prepare(saved.algorithm, saved.env, seed=saved.seed, tuned=False, fields=fields)


_WHOLE = ("actor", "learner", "all")  # stages that are one program
_log = logging.getLogger("rondel")
_CUT = parse("actor | memory | gradient | update")
_LABELLED = parse("actor | memory | label | gradient | update")
_WIDER = 4  # times the rows
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
    if actor and isinstance(task.env, Env):
        spent["env"] = min(_steps_alone(task, task.env), actor)
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


def _steps_alone(task: Task, env: Env) -> float:
    """Seconds of a round's steps, all with the action zero."""
    lane = np.arange(task.lanes, dtype=np.int32)
    state, _ = experience.starter(task)(np.uint32(task.seed), lane)
    action = jax.tree.map(jnp.asarray, zeros(env.spec.action, task.lanes))

    def roll(state: Any) -> Any:
        def one(state: Any, _: Any) -> Any:
            state, said = env.step(state, action)
            return state, (said.obs, said.reward)

        return lax.scan(one, state, length=task.algorithm.rollout)

    run = jax.jit(roll)
    seconds = []
    for _ in range(1 + _ROUNDS):
        began = time.perf_counter()
        state, _ = jax.block_until_ready(run(state))  # type: ignore[no-untyped-call]
        seconds.append(time.perf_counter() - began)
    if env.close is not None:
        env.close(state)
    return min(seconds)
