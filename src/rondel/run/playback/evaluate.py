"""Greedy evaluation of a run, a policy or a folder: `evaluate`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rondel import spaces
from rondel.envs.guard.crash_report import EXITED_EARLY, forbid_exit_zero
from rondel.envs.guard.guarded_env import DEADLINE, with_deadline
from rondel.envs.registry import make
from rondel.errors import RondelError, at_least
from rondel.run.policy.evaluation import Evaluation, Evaluator
from rondel.run.policy.policy import Policy
from rondel.run.session.run import Run, load
from rondel.run.storage import locate, run_folder
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
    """Play greedy episodes in fresh environments, of a run, a policy, or a run's folder.

    For a folder, pass your own algorithm, environment or network again. An environment that takes
    longer than `deadline` seconds (by default the run's) for a step is an error.

    >>> rondel.evaluate(run, episodes=100).mean
    """
    at_least(1, episodes=episodes)
    with opened(what, env, algorithm, config, network, deadline) as (policy, world):
        return Evaluator(policy.algorithm, world, episodes).play(policy.weights, seed)


@contextmanager
def opened(
    what: Run | Policy | str | os.PathLike[str],
    env: Any,
    algorithm: Any,
    config: Any,
    network: Any,
    deadline: float | None,
) -> Iterator[tuple[Policy, Env | HostWorld]]:
    """The policy of a run or a folder, with its environment. `watch` and `record` use it too."""
    check_deadline(deadline)
    with ExitStack() as stack:
        if not isinstance(what, Run | Policy):
            saved = run_folder.read(locate.find_checkpoint(Path(what)))
            # a built-in one need not be that of the run
            bring = None if run_folder.can_be_made(saved.env) else env
            brought = {"algorithm": algorithm, "env": bring, "config": config, "network": network}
            what = stack.enter_context(load(what, memory=False, **brought))
        world = _world(what, env)
        if isinstance(world, HostWorld):
            stack.enter_context(forbid_exit_zero(EXITED_EARLY))
        if isinstance(what, Run):
            deadline = deadline or what.setup.options.deadline
            what = what.policy
        yield what, with_deadline(world, deadline or DEADLINE)


def check_deadline(deadline: float | None) -> None:
    """Refuse a deadline that is not positive."""
    if deadline is not None and not deadline > 0:
        raise RondelError(f"deadline must be more than 0 seconds, got {deadline}.")


def _world(what: Run | Policy, env: Any) -> Env | HostWorld:
    """The environment of the training, or another with the same spaces."""
    if env is None and isinstance(what, Run):
        return what.setup.task.env
    spec = what.policy.spec if isinstance(what, Run) else what.spec
    if env is None and not run_folder.can_be_made(spec.id):
        raise RondelError(f"{spec.id} is a custom environment: pass it again, as env=… (--env).")
    world = make(spec.id if env is None else env)
    wanted, given = (
        spaces.to_json(spaces.with_frames(s.observation, 1)) for s in (spec, world.spec)
    )
    if wanted != given or spaces.to_json(spec.action) != spaces.to_json(world.spec.action):
        raise RondelError(
            f"{world.spec.id} must have the observations and actions of {spec.id}, where the "
            "policy was trained."
        )
    return world
