"""A run's profile again, with the stages of fused programs measured apart.

The same task acts for a few rounds in this thread. What a round learns is then done once more, each
stage in a program of its own that makes all of the round's draws, as the run's own program does: so
no call between stages is counted. The environment's steps are timed alone too.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from dataclasses import is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rondel.envs.guard.crash_report import EXITED_EARLY, forbid_exit_zero
from rondel.errors import RondelError
from rondel.execution.backends import registry
from rondel.execution.backends.inline import Inline
from rondel.execution.loop.ring import Ring
from rondel.execution.loop.sync_loop import run_round
from rondel.execution.stages import acting, learning
from rondel.execution.stages.task import Task, stage_boundary
from rondel.plan.parser import parse
from rondel.plan.pieces import ORDER
from rondel.run.profiling.plan_alternatives import facts_of
from rondel.run.profiling.profile_files import FILE, TRACE, read, write
from rondel.run.profiling.run_profile import TIMING, WIDER, Profile, TimeShare, take_profile
from rondel.run.session.run import Run
from rondel.run.setup.options import block_for
from rondel.run.setup.prepare import Setup, prepare
from rondel.run.storage import locate
from rondel.run.storage.atomic_files import refuse_to_replace, replace_file
from rondel.run.storage.metadata import SavedRun
from rondel.run.storage.metadata import read as read_checkpoint
from rondel.run.storage.run_folder import PLACING, home_of, setup_from
from rondel.spaces import zeros
from rondel.types import Env


def profile(
    run: Run | str | os.PathLike[str],
    *,
    apart: bool = True,
    algorithm: Any = None,
    env: Any = None,
    config: Any = None,
    network: Any = None,
    trace: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> Profile:
    """Where the time of a run went: of one that goes on, or in the folder of one that wrote it.

    Stages that were one program are measured `apart`. An algorithm, environment or network of your
    own has to be brought again for that. `trace` is a file for its newest events, which Perfetto
    and Chrome show; one that is there stays, but for `overwrite`.

    >>> print(rondel.profile("runs/a").table())
    """
    if isinstance(run, Run):
        return take_profile(run.ring, facts_of(run.setup, run.ring.fused))[0]
    folder = _home(Path(run))
    found = read(folder)
    if trace is not None:
        _copy(folder / TRACE, Path(trace), overwrite)
    brought = {"algorithm": algorithm, "env": env, "config": config, "network": network}
    if apart and can_be_measured(found):
        try:
            with forbid_exit_zero(EXITED_EARLY):
                return measured(found, folder, **brought)
        except RondelError as error:  # parts of it are its user's own, or its checkpoint is gone
            if any(part is not None for part in brought.values()):
                raise  # they were brought for this
            _log.warning("Its stages were not measured apart. %s", error)
    return found


def _home(path: Path) -> Path:
    """The folder of the run that is meant by `path`, which may be one of its checkpoints."""
    try:
        locate.refuse_file(path)
        if not path.is_dir():
            raise RondelError(f"{path}: no such folder. A run's folder would do.")
        whole = path.absolute()
        home = home_of(whole) if whole.parent.name == "checkpoints" else path
        if (home / FILE).exists():
            return home
        begun = (home / "config.json").is_file()
    except OSError as error:
        raise RondelError(f"{path} can't be read: {error.strerror}.") from error
    locate.refuse_several(path)
    if not begun:
        raise RondelError(f"{path} holds no run. A run's folder would do.")
    raise RondelError(
        f"The run in {home} has written no profile yet: it does so at its end, and at each "
        "checkpoint, once a minute. If it goes on, wait for that; if it was killed before, train "
        "it again."
    )


def can_be_measured(found: Profile) -> bool:
    """Are some of its stages one program, that were not measured apart yet?"""
    one = any(share.stage in _WHOLE for share in _busy(found))
    return found.apart is None and one and not found.about.sharded


def measured(found: Profile, folder: Path, **brought: Any) -> Profile:
    """The same with the stages of its programs measured apart, also for who looks later.

    `brought` is what its user has of their own: algorithm, env, config, network.
    """
    found = _measured(found, folder, **brought)
    write(folder, found)
    return found


def _busy(found: Profile) -> list[TimeShare]:
    return [share for piece in found.pieces for share in piece.shares if share.part > 0.1]


def _measured(
    found: Profile,
    folder: Path,
    algorithm: Any = None,
    env: Any = None,
    config: Any = None,
    network: Any = None,
) -> Profile:
    """The same with the stages of its programs measured apart."""
    saved = read_checkpoint(locate.find_checkpoint(folder))
    placing = {"on": registry.IN_DRIVER, "plan": "all", "free": False, "lag": 0}
    setup = setup_from(saved, algorithm, env, config, network, placing)
    spent = stages_apart(setup.task)
    total = sum(spent.values())
    shares = {stage: seconds / total for stage, seconds in spent.items()}
    more = None
    if found.widened:
        with suppress(RondelError):  # what is wider may not fit into memory
            wide = wider(saved, algorithm, env, config, network)
            more = sum(stages_apart(wide.task).values()) / total
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
        replace_file(target, events)
    except OSError as error:
        raise RondelError(
            f"Writing {target} failed: {error.strerror}. Make space there, make the folder "
            "writable, or choose another."
        ) from error


def wider(
    saved: SavedRun,
    algorithm: Any = None,
    env: Any = None,
    config: Any = None,
    network: Any = None,
) -> Setup:
    """The same run with four times the rows in every stage, in this thread.

    Where batches have a size of their own, as those of a replay have, lanes alone would leave the
    gradient with as many rows as before, or make more gradient steps.
    """
    options = {k: v for k, v in saved.options.items() if v is not None and k not in PLACING}
    if options.get("block") == block_for(options["lanes"]):
        del options["block"]  # as who adds lanes has it: they act in one call, up to 8 of them
    fields = options | ((saved.config or {}) if config is None else {})
    known = fields | (vars(config) if is_dataclass(config) else {})
    grown = {name: WIDER * known[name] for name in ("lanes", "batch") if name in known}
    fewer = {name: known[name] / WIDER for name in ("updates_per_step",) if name in known}
    fields |= grown | fewer | {"plan": "all", "on": registry.IN_DRIVER}
    fields |= {} if network is None else {"network": network}
    name = saved.algorithm if algorithm is None else algorithm
    where = saved.env if env is None else env
    return prepare(name, where, seed=saved.seed, config=config, tuned=False, fields=fields)


_WHOLE = ("actor", "learner", "all")  # stages that are one program
_log = logging.getLogger("rondel")
_CUT = parse("actor | learner")
_ROUNDS = 5  # that are timed at the most, after one that compiles
_SECONDS = TIMING / 5  # that they may take of each program, but for the last of them


def stages_apart(task: Task) -> dict[str, float]:
    """Seconds of a round in each stage."""
    ring = Ring(task, _CUT, Inline(meshed=False))
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
            before = _by_stage(ring)
            items, _, _ = ring.policy[0].produce(weights, ring.round)
            after = _by_stage(ring)
            acted.append({stage: after[stage] - before.get(stage, 0.0) for stage in after})
    finally:
        ring.close()
    # others on the machine only ever add to it
    spent = {stage: min(each[stage] for each in acted) for stage in acted[0]}
    actor = spent.pop("actor", 0.0)
    if isinstance(task.env, Env):
        spent["env"] = min(_steps_alone(task, task.env), actor)
        spent["policy"] = actor - spent["env"]
    else:  # what an actor does besides is the policy's
        spent["policy"] = spent.get("policy", 0.0) + actor
    spent |= _learning_apart(task, ring.round, items, **learner)
    return {name: spent[name] for name in ORDER if name in spent}


def _by_stage(ring: Ring) -> dict[str, float]:
    """Seconds so far of what an actor does."""
    _, told = ring.metered()[0][0]
    found: dict[str, float] = {}
    for one in told.spent:
        if one.stage in ("env", "policy", "actor"):
            found[one.stage] = found.get(one.stage, 0.0) + one.seconds
    return found


def _learning_apart(
    task: Task, round: Any, items: Any, learner: Any, memory: Any
) -> dict[str, float]:
    """Seconds of a round in each stage from memory on."""
    algorithm, seed = task.algorithm, jnp.uint32(task.seed)
    draws = np.int32(algorithm.memory.draws)

    def draw(memory: Any, j: Any) -> Any:
        return learning.compute_draw(task, seed, memory, round, j)

    def label(learner: Any, batch: Any, j: Any) -> Any:
        return learning.compute_label(task, seed, algorithm.learning(learner), batch, round, j)

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
        "memory": _least(jax.jit(remember, donate_argnums=0), memory, draws),
        "gradient": _least(jax.jit(partial(make, gradient, labelled)), known, draws),
        "update": _least(jax.jit(update), learner, draws),
    }
    if algorithm.label is not None:
        spent["label"] = _least(jax.jit(partial(make, label, batch)), known, draws)
    return spent


def _first(tree: Any) -> Any:
    """A number that needs all of a tree, as long as a boundary holds that together."""
    return jax.tree.leaves(tree)[0].ravel()[0].astype(jnp.float32)


def _least(program: Any, state: Any, draws: Any) -> float:
    """Seconds of `state = program(state, draws)`, at the best of a few times."""
    seconds: list[float] = []
    state = jax.block_until_ready(program(state, draws))  # type: ignore[no-untyped-call]
    began = time.monotonic()  # the first has compiled
    while len(seconds) < _ROUNDS and time.monotonic() - began < _SECONDS:
        start = time.perf_counter()
        state = jax.block_until_ready(program(state, draws))  # type: ignore[no-untyped-call]
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _steps_alone(task: Task, env: Env) -> float:
    """Seconds of a round's steps, all with the action zero."""
    lane = np.arange(task.lanes, dtype=np.int32)
    state, _ = acting.episode_starter(task)(np.uint32(task.seed), lane)
    action = jax.tree.map(jnp.asarray, zeros(env.spec.action, task.lanes))

    def roll(state: Any) -> Any:
        def one(state: Any, _: Any) -> Any:
            state, said = env.step(state, action)
            return state, (said.obs, said.reward)

        return lax.scan(one, state, length=task.algorithm.rollout)

    run = jax.jit(roll)
    seconds: list[float] = []
    for _ in range(1 + _ROUNDS):
        began = time.perf_counter()
        state, _ = jax.block_until_ready(run(state))  # type: ignore[no-untyped-call]
        seconds.append(time.perf_counter() - began)
    if env.close is not None:
        env.close(state)
    return min(seconds)
