"""Training from Python: `start`, `train`, `resume`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

from rondel.execution.loop.sync_loop import Limits
from rondel.run.display.display import Display
from rondel.run.session.run import Job, Run, check_evaluation, check_integer, check_limits
from rondel.run.setup.prepare import Setup, prepare
from rondel.run.storage import loggers, run_folder
from rondel.run.training.hooks import UserHook, as_hooks
from rondel.run.training.multi_seed import Runs, run_seeds
from rondel.run.training.seed_jobs import jobs_for, resumed_jobs
from rondel.run.training.train_loop import estimate_memory, run_training

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
    """A run that has not begun: iterate over it to take its rounds one by one.

    `algorithm` is a name, a module with `Config` and `make`, or your own `make(config, spec)`.
    `env` is an id, a traceable `Env`, a gymnasium.Env, or a function that makes one. `fields` are
    those of the algorithm's `Config` and of `Options` (lanes, block, plan, lag, free, on and so
    on: see `rondel.run.setup.prepare`). It writes nothing. Processes that it starts end with the
    `with`.

    >>> with rondel.start("ppo", "CartPole-v1", steps=10_000) as run:
    ...     for report in run:
    ...         print(report.steps, report.metrics)
    """
    asked = {"config": config, "tuned": tuned, "fields": fields}
    return Run(*_request(algorithm, env, steps, until_return, seed, **asked))


def _request(
    algorithm: Any, env: Any, steps: int, until_return: float | None, seed: int, **asked: Any
) -> tuple[Setup, Limits]:
    """Check what was asked, before anything is made that would have to be closed."""
    limits = check_limits(steps, until_return)
    check_integer("seed", seed, 0, 32)
    return prepare(algorithm, env, seed=seed, **asked), limits


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
    hooks: Sequence[UserHook] | UserHook = (),
    display: Display | None = None,
    eval_episodes: int = 100,
    eval_every: int = 0,
    log: str | Sequence[str] = (),
    **fields: Any,
) -> Run | Runs:
    """Train into a folder with config, metrics, checkpoints and a learning curve.

    Takes what `start` takes, and `out`, the folder (by default a new one under runs/). `hooks` are
    functions of (run, record), called after each round, or `rondel.Hook` objects; one that returns
    True ends the run there. `eval_episodes` greedy episodes are played at the end, and also every
    `eval_every` steps. `log` names outputs for metrics besides metrics.jsonl: "tensorboard",
    "wandb" or both. `seeds` trains that many seeds, from `seed` on, and returns their runs.

    >>> run = rondel.train("ppo", "CartPole-v1", steps=100_000)
    >>> run.policy.act(obs)
    """
    began = time.monotonic()
    evaluation, own = check_evaluation(eval_episodes, eval_every), as_hooks(hooks)
    log = loggers.names_in(log) if log else ()
    asked = {"config": config, "tuned": tuned, "fields": fields}
    setup, limits = _request(algorithm, env, steps, until_return, seed, **asked)
    if seeds is not None:
        jobs, path = jobs_for(setup, limits, seeds, out, evaluation)
        return run_seeds(jobs, path, own, display, began, log)
    memory = estimate_memory(setup) if display else None
    path = run_folder.claim(out, setup.name, setup.env_id, f"seed{seed}")
    try:
        run = Job(setup, limits, path, *evaluation).run()
    except BaseException:
        run_folder.release(path)
        raise
    return run_training(run, memory, own, display or Display(), began, log)


def resume(
    path: str | os.PathLike[str],
    *,
    steps: int | None = None,
    until_return: float | None = None,
    algorithm: Any = None,
    env: Any = None,
    config: Any = None,
    network: Any = None,
    hooks: Sequence[UserHook] | UserHook = (),
    display: Display | None = None,
    eval_episodes: int | None = None,
    eval_every: int | None = None,
    log: str | Sequence[str] = (),
    **placing: Any,
) -> Run | Runs:
    """Continue a run from its newest checkpoint, or from the one given; `steps` is the new total.

    The folder of several seeds continues all of them. Pass an algorithm, environment or network of
    your own again, and `hooks` and `log`. `placing` changes where the run goes on: plan, lag, free,
    on, resources, address, deadline, restarts. A run that was killed after its last round is
    evaluated, and its curve drawn.
    """
    began = time.monotonic()
    log, own = loggers.names_in(log), as_hooks(hooks)
    seeds = run_folder.seeds_in(Path(path))
    brought = {"algorithm": algorithm, "env": env, "config": config, "network": network}
    wanted = (steps, until_return, eval_episodes, eval_every)
    jobs = resumed_jobs(Path(path), seeds, wanted, brought, placing)
    if seeds:
        return run_seeds(jobs, Path(path), own, display, began, log)
    memory = estimate_memory(jobs[0].setup) if display else None
    run = jobs[0].run()
    return run_training(run, memory, own, display or Display(), began, log)
