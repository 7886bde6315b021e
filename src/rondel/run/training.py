"""From a request to a trained agent: `start`, `train`, `resume`, `load`."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from rondel.errors import RondelError, at_least
from rondel.execution.loop import Limits, met
from rondel.execution.round import Report
from rondel.run import (
    checkpoint,
    curve,
    diagnosis,
    folder,
    machine,
    outputs,
    profile,
    saved,
    summary,
)
from rondel.run.clock import Clock
from rondel.run.cost import Cost, cost_of
from rondel.run.display import Display, Silent
from rondel.run.record import Recorder, number, read
from rondel.run.run import Run
from rondel.run.setup import Setup, prepare

Callback = Callable[[Run, Report], Any]
STEPS = 100_000
_ROWS = 1_000  # of metrics.jsonl, about
_CHECKPOINT_SECONDS = 60.0
_log = logging.getLogger("rondel")
_ELSEWHERE = "it ran with other XLA flags or cores before: numbers may differ in their last bits"


def start(
    algorithm: Any,
    env: Any,
    *,
    steps: int = STEPS,
    seed: int = 0,
    config: Any = None,
    tuned: bool = True,
    until_return: float | None = None,
    **fields: Any,
) -> Run:
    """A run that is ready to go; iterate over it to take its rounds one by one.

    `algorithm` is a name, a module with `Config` and `make`, or your own `make(config, spec)`.
    `env` is an id, a traceable `Env`, a gymnasium.Env, or a function that makes one. `fields` are
    those of the algorithm's `Config` and of `Options` (lanes, block, plan, lag, free, on and so
    on: see `rondel.run.setup`). It writes nothing. What runs elsewhere ends with the `with`.

    >>> with rondel.start("ppo", "CartPole-v1", steps=10_000) as run:
    ...     for report in run:
    ...         print(report.steps, report.metrics)
    """
    request = _request(algorithm, env, steps, seed, config, tuned, until_return, fields)
    return Run(*request)


def _limits(steps: int, until_return: float) -> Limits:
    """When a run ends, if that can be."""
    if not isinstance(steps, int) or not 1 <= steps < 2**63:
        raise RondelError(
            f"steps={steps!r:.40} is no run: a whole number, 1 or more and below 2**63, would work."
        )
    if until_return != until_return:
        raise RondelError("until_return=nan can't be reached: take a number, or leave it out.")
    return Limits(steps, until_return)


def _request(
    algorithm: Any,
    env: Any,
    steps: int,
    seed: int,
    config: Any,
    tuned: bool,
    until_return: float | None,
    fields: dict[str, Any],
) -> tuple[Setup, Limits, str]:
    """What `start` was asked for, checked: nothing is made yet that would have to be closed."""
    goal = float("inf") if until_return is None else until_return
    limits = _limits(steps, goal)
    if not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise RondelError(f"seed={seed} can't be used: take a whole number from 0 to 2**32 - 1.")
    here = machine.settle()
    setup = prepare(algorithm, env, seed=seed, config=config, tuned=tuned, fields=fields)
    return setup, limits, here


def train(
    algorithm: Any,
    env: Any,
    *,
    steps: int = STEPS,
    seed: int = 0,
    config: Any = None,
    tuned: bool = True,
    until_return: float | None = None,
    out: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Callback] | Callback = (),
    display: Display | None = None,
    eval_episodes: int = 100,
    log: str | Sequence[str] = (),
    **fields: Any,
) -> Run:
    """Train, with a folder that holds config, metrics, checkpoints and a learning curve.

    Takes what `start` takes, and `out`, the folder (by default a new one under runs/). A callback
    gets the run and the report after each round; when it returns True the run stops there. `log`
    says where metrics go besides metrics.jsonl: "tensorboard", "wandb", or both.

    >>> run = rondel.train("ppo", "CartPole-v1", steps=100_000)
    >>> run.policy.act(obs)
    """
    began = time.monotonic()
    at_least(0, eval_episodes=eval_episodes)
    log = outputs.names_in(log)
    request = _request(algorithm, env, steps, seed, config, tuned, until_return, fields)
    setup = request[0]
    fitting = _fitting(setup) if display else None
    path = folder.claim(out, setup.name, setup.env_id, seed)
    try:
        run = Run(*request, path)
    except BaseException:
        with suppress(OSError):  # it may hold something already
            path.rmdir()
        raise
    run.eval_episodes = eval_episodes
    return _drive(run, fitting, callbacks, display or Silent(), began, log)


def resume(
    path: str | os.PathLike[str],
    *,
    steps: int | None = None,
    until_return: float | None = None,
    algorithm: Any = None,
    env: Any = None,
    config: Any = None,
    network: Any = None,
    callbacks: Sequence[Callback] | Callback = (),
    display: Display | None = None,
    eval_episodes: int | None = None,
    log: str | Sequence[str] = (),
    **placing: Any,
) -> Run:
    """Go on with a run from its newest checkpoint, or from the one given; `steps` is the new total.

    An algorithm, environment or network of your own has to be brought again, and so has `log`.
    `placing` says where it goes on, if not as before: plan, lag, free, on, resources, address,
    deadline, restarts. A run that was killed between its last checkpoint and its end is brought to
    its end.
    """
    began = time.monotonic()
    at_least(0, eval_episodes=eval_episodes)
    log = outputs.names_in(log)
    found = checkpoint.find(Path(path))
    before = saved.read(found)
    total = before.total_steps if steps is None else steps
    goal = _goal(before) if until_return is None else until_return
    limits = _limits(total, goal)
    placing = {"on": before.options.get("on")} | placing
    run = load(found, algorithm=algorithm, env=env, config=config, network=network, **placing)
    run.limits = limits
    if eval_episodes is not None:
        run.eval_episodes = eval_episodes
    if met(run.ring, limits) and folder.is_finished(folder.home_of(found), found):
        run.close()
        raise RondelError(
            f"The run in {run.path} has done {run.steps} steps with a mean return of "
            f"{run.return_mean}, so it is at its end. To go on, name a larger total, such as "
            f"steps={2 * run.steps} (--steps on the command line), and another until_return if it "
            "has one (inf for none)."
        )
    fitting = _fitting(run.setup) if display else None
    return _drive(run, fitting, callbacks, display or Silent(), began, log, found)


def load(
    path: str | os.PathLike[str],
    *,
    algorithm: Any = None,
    env: Any = None,
    config: Any = None,
    network: Any = None,
    **placing: Any,
) -> Run:
    """A run as its newest checkpoint, or the one given, has it: to ask, evaluate or go on with.

    All of it is in this process, unless `placing` says otherwise: plan, lag, free, on, resources,
    address, deadline, restarts.
    """
    placing = {"on": "inline", "resources": None, "address": None} | placing
    found = checkpoint.find(Path(path))
    before = saved.read(found)
    here = machine.settle()
    limits = _limits(before.total_steps, _goal(before))
    saved.check_lanes(found, before)
    setup = folder.setup_from(before, algorithm, env, config, network, placing)
    saved.check_learner(found, setup)
    run = Run(setup, limits, here, folder.home_of(found))
    try:
        run.restore(found)
    except BaseException:
        run.close()
        raise
    run.notes += [] if before.machine == here else [_ELSEWHERE]
    return run


def _goal(before: saved.Saved) -> float:
    return float("inf") if before.until_return is None else before.until_return


def _fitting(setup: Setup) -> tuple[Cost, int]:
    """What a run will take of memory, and what is free; it says so if that is not enough.

    It traces what will be compiled, which takes a moment: only where someone is shown it.
    """
    cost, room = cost_of(setup), machine.room()
    here = setup.options.on != "ray" or not setup.options.address
    if here and (warning := cost.warning(room)):
        _log.warning("%s", warning)
    return cost, room


def _drive(
    run: Run,
    fitting: tuple[Cost, int] | None,
    callbacks: Sequence[Callback] | Callback,
    display: Display,
    began: float,
    log: Sequence[str],
    found: Path | None = None,
) -> Run:
    """Run to the limits, from the checkpoint that was `found`; keep folder and display up to date.

    In this order, so that a kill at any instant leaves a run that can go on: rows, checkpoint,
    evaluation, curve.
    """
    assert run.path is not None
    callbacks = [callbacks] if callable(callbacks) else callbacks
    with run:
        meta = folder.describe(run.setup, run.limits.steps, run.limits.until_return, run.machine)
        folder.write_config(run.path, meta)
        metrics = run.path / "metrics.jsonl"
        recorder = Recorder(metrics, run.steps if found else None)
        rows = read(metrics)
        before = max((number(row, "seconds") or 0.0 for row in rows[-1:]), default=0.0)
        place = outputs.Place(run.path, meta, rows, found is not None)
        first = run.ring.round
        display.start(summary.rows(run, *fitting) if fitting else [])
        ending = failed = f"The run failed; its folder is {run.path}."
        try:
            with recorder, outputs.opened(log, place, partial(_note, run, display)) as send:
                clock = Clock(run, began - before)
                stopped = _rounds(run, clock, callbacks, display, recorder, send)
                recorder.sync()
                seen = _profiled(run) if run.ring.round > first else None
                where = found if found and run.ring.round == first else run.save()
                flags = "".join(f" --log {name}" for name in log)
                ending = f"Stopped; go on with `rondel resume {run.path}{flags}`."
                if stopped:
                    raise KeyboardInterrupt
                evaluation = run.evaluate(run.eval_episodes) if run.eval_episodes else None
                curve.draw(run.path, f"{run.setup.name} on {run.setup.env_id}")
                run.result = clock.result(evaluation)
                ending = summary.ending(run, where)
                if seen:
                    ending += f"\n{seen.table()}\n{diagnosis.diagnose(seen).text}"
        except KeyboardInterrupt:
            if ending == failed:  # a second Ctrl-C, which does not wait
                ending = f"Stopped at once, without saving; its folder is {run.path}."
            raise
        finally:
            display.stop(ending)
    return run


def _rounds(
    run: Run,
    clock: Clock,
    callbacks: Sequence[Callback],
    display: Display,
    recorder: Recorder,
    send: Callable[[outputs.Row], None],
) -> bool:
    """All rounds up to the limits, shown and written down; True if Ctrl-C ended them."""
    last = time.monotonic()
    every = max(1, run.limits.steps // _ROWS)
    seen = run.steps or -1  # the first round has a row
    with _interrupts() as interrupted:
        for report in run.rounds(at_a_time=1 if callbacks else None):
            clock.tick()
            if report.steps // every > seen // every:  # the same rounds, however often resumed
                send(recorder.write(clock.row(report)))
            seen = report.steps
            display.update(clock.progress(report))
            answers = [callback(run, report) for callback in callbacks]
            if report.round + 1 < run.ring.round:
                continue  # saved now, the run would go on behind rows that are not written yet
            if any(answers) or interrupted.is_set():
                break
            if time.monotonic() - last > _CHECKPOINT_SECONDS:
                recorder.sync()
                run.save()
                _profiled(run)
                last = time.monotonic()
        return interrupted.is_set()


def _note(run: Run, display: Display, message: str) -> None:
    run.notes.append(message)
    display.note(message)


def _profiled(run: Run) -> profile.Profile:
    """Where the time went, also for `rondel profile`."""
    assert run.path is not None
    found, events = profile.taken(run.ring, run.setup.env_id, run.setup.options.on)
    profile.write(run.path, found, events)
    return found


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Ctrl-C asks for a stop at the next round; a second one does not wait for it."""
    asked = threading.Event()
    elsewhere = threading.current_thread() is not threading.main_thread()
    # it is ignored where it is for another to obey: a run inside a process of another run
    if elsewhere or signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        yield asked
        return

    def ask(*_: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
