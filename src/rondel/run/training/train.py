"""From a request to a trained agent: `start`, `train`, `resume`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

from rondel.errors import RondelError, at_least
from rondel.execution.loop.sync_loop import Limits, is_finished
from rondel.run.display.display import Display, Silent
from rondel.run.session.load import load
from rondel.run.session.run import Run
from rondel.run.session.stop_conditions import check_limits as checked
from rondel.run.session.stop_conditions import resumed_limits
from rondel.run.setup import jax_process
from rondel.run.setup.prepare import Setup, prepare
from rondel.run.storage import locate, loggers, metadata, run_folder
from rondel.run.training.multi_seed import Runs, run_seeds
from rondel.run.training.resume_hint import offer_resume_hint
from rondel.run.training.seed_jobs import jobs_for, resumed_jobs
from rondel.run.training.train_loop import Callback, estimate_memory, run_training

STEPS = 100_000


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
    on: see `rondel.run.setup.prepare`). It writes nothing. What runs elsewhere ends with the
    `with`.

    >>> with rondel.start("ppo", "CartPole-v1", steps=10_000) as run:
    ...     for report in run:
    ...         print(report.steps, report.metrics)
    """
    request = _request(algorithm, env, steps, seed, config, tuned, until_return, fields)
    return Run(*request)


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
    limits = checked(steps, until_return)
    if not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise RondelError(f"seed={seed} can't be used: take a whole number from 0 to 2**32 - 1.")
    setup = prepare(algorithm, env, seed=seed, config=config, tuned=tuned, fields=fields)
    return setup, limits, setup.machine


@overload
def train(algorithm: Any, env: Any, *, seeds: None = None, **asked: Any) -> Run: ...


@overload
def train(algorithm: Any, env: Any, *, seeds: int, **asked: Any) -> Runs: ...


def train(
    algorithm: Any,
    env: Any,
    *,
    steps: int = STEPS,
    seed: int = 0,
    seeds: int | None = None,
    config: Any = None,
    tuned: bool = True,
    until_return: float | None = None,
    out: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Callback] | Callback = (),
    display: Display | None = None,
    eval_episodes: int = 100,
    log: str | Sequence[str] = (),
    **fields: Any,
) -> Run | Runs:
    """Train, with a folder that holds config, metrics, checkpoints and a learning curve.

    Takes what `start` takes, and `out`, the folder (by default a new one under runs/). A callback
    gets the run and the report after each round; when it returns True the run stops there. `log`
    says where metrics go besides metrics.jsonl: "tensorboard", "wandb", or both. `seeds` trains so
    many, from `seed` on: the answer is a sequence of runs, each of which has a folder of its own in
    `out`.

    >>> run = rondel.train("ppo", "CartPole-v1", steps=100_000)
    >>> run.policy.act(obs)
    """
    began = time.monotonic()
    at_least(0, eval_episodes=eval_episodes)
    log = loggers.names_in(log)
    request = _request(algorithm, env, steps, seed, config, tuned, until_return, fields)
    setup = request[0]
    if seeds is not None:
        jobs, path = jobs_for(request, seed, seeds, out, eval_episodes)
        return run_seeds(jobs, path, _listed(callbacks), display, began, log)
    room = estimate_memory(setup) if display else None
    path = run_folder.claim(out, setup.name, setup.env_id, f"seed{seed}")
    try:
        run = Run(*request, path)
    except BaseException:
        run_folder.release(path)
        raise
    run.eval_episodes = eval_episodes
    run.env_named = env if isinstance(env, str) else None
    return run_training(run, room, _listed(callbacks), display or Silent(), began, log)


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
) -> Run | Runs:
    """Go on with a run from its newest checkpoint, or from the one given; `steps` is the new total.

    The folder of several seeds goes on with all of them. An algorithm, environment or network of
    your own has to be brought again, and so has `log`. `placing` says where it goes on, if not as
    before: plan, lag, free, on, resources, address, deadline, restarts. A run that was killed
    between its last checkpoint and its end is brought to its end.
    """
    began = time.monotonic()
    at_least(0, eval_episodes=eval_episodes)
    log = loggers.names_in(log)
    asked: dict[str, Any] = {"steps": steps, "until_return": until_return, "env": env}
    asked |= {"eval_episodes": eval_episodes, "network": network, "log": tuple(log)}
    asked |= {"algorithm": algorithm}
    with offer_resume_hint(asked | placing):
        if seeds := run_folder.seeds_in(Path(path)):
            brought = {"algorithm": algorithm, "env": env, "config": config, "network": network}
            wanted = (steps, until_return, eval_episodes)
            jobs = resumed_jobs(Path(path), seeds, wanted, brought, placing)
            return run_seeds(jobs, Path(path), _listed(callbacks), display, began, log)
        found = locate.find_checkpoint(Path(path))
        before = metadata.read(found)
        limits = resumed_limits(before, steps, until_return)
        placing = {"on": before.options.get("on")} | placing
        free = jax_process.free_memory()
        run = load(found, algorithm=algorithm, env=env, config=config, network=network, **placing)
    run.limits = limits
    run.env_named = env if isinstance(env, str) else None
    if eval_episodes is not None:
        run.eval_episodes = eval_episodes
    if is_finished(run.ring, limits) and run_folder.is_finished(run_folder.home_of(found), found):
        run.close()
        raise RondelError(
            f"The run in {run.path} has done {run.steps} steps with a mean return of "
            f"{run.return_mean}, so it is at its end. To go on, name a larger total, such as "
            f"steps={2 * run.steps} (--steps on the command line), and another until_return if it "
            "has one (inf for none)."
        )
    try:
        room = estimate_memory(run.setup, room=free) if display else None
    except BaseException:
        run.close()
        raise
    return run_training(run, room, _listed(callbacks), display or Silent(), began, log, found)


def _listed(callbacks: Sequence[Callback] | Callback) -> Sequence[Callback]:
    return [callbacks] if callable(callbacks) else callbacks
