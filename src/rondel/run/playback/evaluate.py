"""What a run has learned, at play: `evaluate`, `record`, and what they share with `watch`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rondel import spaces
from rondel.envs.guard.crash_report import EXITED_EARLY, forbid_exit_zero
from rondel.envs.guard.guarded_env import DEADLINE, with_deadline
from rondel.envs.registry import make
from rondel.errors import RondelError
from rondel.run.policy.evaluation import Evaluation, run_episodes
from rondel.run.policy.policy import Policy
from rondel.run.session.run import Run
from rondel.run.setup import datasets, jax_process
from rondel.run.storage import locate, metadata, run_folder
from rondel.run.storage.atomic_files import refuse_to_replace
from rondel.run.training.train import load
from rondel.types import Env, HostWorld


def evaluate(
    what: Run | Policy | str | os.PathLike[str],
    env: Any = None,
    *,
    episodes: int = 100,
    seed: int = 0,
    algorithm: Any = None,
    config: Any = None,
    network: Any = None,
    deadline: float | None = None,
) -> Evaluation:
    """Greedy episodes in fresh environments, of a run, a policy, or what a folder holds.

    An algorithm, environment or network of your own has to be brought again for a folder. One that
    answers later than after `deadline` seconds, by default the run's, hangs: that is an error.

    >>> rondel.evaluate(run, episodes=100).mean
    """
    if episodes < 1:
        raise RondelError(f"episodes={episodes} shows nothing: 1 or more would work.")
    with opened(what, env, algorithm, config, network, deadline) as (policy, world):
        return run_episodes(policy.algorithm, world, policy.weights, episodes, seed)


@contextmanager
def opened(
    what: Run | Policy | str | os.PathLike[str],
    env: Any,
    algorithm: Any,
    config: Any,
    network: Any,
    deadline: float | None,
) -> Iterator[tuple[Policy, Env | HostWorld]]:
    """The policy of a run, or of what a folder holds, and the environment to play it in."""
    _check(deadline)
    if isinstance(what, Run | Policy):
        with forbid_exit_zero(EXITED_EARLY):
            yield _policy(what), with_deadline(_world(what, env), deadline or _deadline_of(what))
        return
    own = not run_folder.can_be_made(metadata.read(locate.find_checkpoint(Path(what))).env)
    bring = env if own else None  # a run of ours can be tried in any environment
    brought = {"algorithm": algorithm, "env": bring, "config": config, "network": network}
    with forbid_exit_zero(EXITED_EARLY), load(what, memory=False, **brought) as run:
        yield run.policy, with_deadline(_world(run, env), deadline or _deadline_of(run))


def _check(deadline: float | None) -> None:
    if deadline is not None and not deadline > 0:
        raise RondelError(f"deadline={deadline} can't work: seconds, more than 0, would.")


def _deadline_of(what: Run | Policy) -> float:
    return what.setup.options.deadline if isinstance(what, Run) else DEADLINE


def _world(what: Run | Policy, env: Any) -> Env | HostWorld:
    """Where a policy is to play: where it was trained, or in another one that it can take."""
    if env is None and isinstance(what, Run):
        return what.setup.task.env
    spec = what.policy.spec if isinstance(what, Run) else what.spec
    if env is None and not run_folder.can_be_made(spec.id):
        raise RondelError(f"{spec.id} is an environment of your own: bring it again, with env=….")
    world = make(spec.id if env is None else env)
    wanted, given = (spaces.to_json(spaces.unstacked(s.observation)) for s in (spec, world.spec))
    if wanted != given or spaces.to_json(spec.action) != spaces.to_json(world.spec.action):
        raise RondelError(
            f"{world.spec.id} has other observations or actions than {spec.id}, where the policy "
            "was trained: take an environment with the same."
        )
    return world


def _policy(what: Run | Policy) -> Policy:
    return what.policy if isinstance(what, Run) else what


def record(
    what: Run | Policy | str | os.PathLike[str] | datasets.Act,
    file: str | os.PathLike[str],
    env: Any = None,
    *,
    episodes: int = 100,
    seed: int = 0,
    overwrite: bool = False,
    algorithm: Any = None,
    config: Any = None,
    network: Any = None,
    deadline: float | None = None,
) -> float:
    """Write greedy episodes into a file, as demonstrations for others; returns their mean return.

    Of a run, a policy, what a folder holds, or a function of your own, `act(obs, carry) -> (action,
    carry)` for single observations: carry is None when an episode begins, and then what it last
    returned. Its actions are choices from 0, or in -1..1. The rest is as in `evaluate`.

    >>> rondel.record(run, "demonstrations.safetensors", episodes=100)
    """
    if callable(what) and env is None:
        raise RondelError("A function of your own needs an environment to act in: env=….")
    _check(deadline)
    refuse_to_replace(Path(file), overwrite)
    jax_process.configure_jax()  # a run that comes after it must not find JAX started otherwise
    if callable(what):
        world = with_deadline(make(env), deadline or DEADLINE)
        return datasets.record_with(what, world, file, episodes, seed)
    with opened(what, env, algorithm, config, network, deadline) as (policy, world):
        act = datasets.act_of(policy)
        return datasets.record_with(act, world, file, episodes, seed)
