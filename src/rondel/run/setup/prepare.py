"""A run before its first round: its algorithm, environment and plan, found, built and checked."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Set
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np

from rondel.algorithms import catalogue
from rondel.algorithms.wrappers import with_observation_normalisation, with_reward_scaling
from rondel.envs.guard.check import check
from rondel.envs.guard.crash_report import report_if_process_dies
from rondel.envs.registry import is_builtin, make
from rondel.errors import RondelError
from rondel.execution.backends import registry
from rondel.execution.backends.lowering import Kind, Lowering, devices_for, lower
from rondel.execution.stages import initial
from rondel.execution.stages.memory_limit import bytes_of
from rondel.execution.stages.task import Task
from rondel.execution.telemetry.timeouts import timeouts_for
from rondel.plan.parser import parse
from rondel.plan.plan import Plan
from rondel.run.setup import datasets, jax_process, user_network
from rondel.run.setup.checks import check_plan, check_size
from rondel.run.setup.options import (
    MAX_SECONDS,
    Options,
    override_fields,
    resolve_options,
    split_fields,
    tuned_for,
)
from rondel.types import Algorithm, Env, EnvSpec, HostWorld

_PARTS = {"network", "demonstrations", "model"}  # what a `make` may take beside config and spec


class Setup(NamedTuple):
    """A run before its first round."""

    name: str  # of the algorithm
    config: Any
    options: Options
    tuned: dict[str, Any]  # the fields that came from the table of tuned settings
    task: Task
    plan: Plan
    machine: str  # XLA's flags and threads, on which the last bits of a run depend

    @property
    def env_id(self) -> str:
        return self.task.env.spec.id

    @property
    def lowering(self) -> Lowering:
        """How its plan runs on its backend."""
        return lower(self.task, self.plan, registry.find(self.options.on).in_driver)


def prepare(
    algorithm: str | ModuleType | Callable[[Any, EnvSpec], Algorithm],
    env: Any,
    *,
    seed: int = 0,
    config: Any = None,
    tuned: bool = True,
    fields: dict[str, Any] | None = None,
) -> Setup:
    """Find the algorithm and the environment, fill in every field, and check all of it.

    `fields` are those of the algorithm's Config and of `Options` by name. They override tuned
    settings, which override defaults; a `config` leaves out the tuned settings. This also sets up
    JAX in this process, unless it has started.
    """
    own, rest = split_fields(fields or {})
    _configure_jax(own)  # before user code can start JAX
    found = catalogue.find(algorithm)
    parts = _PARTS & inspect.signature(found.make).parameters.keys()
    network = rest.get("network") if "network" in parts else None
    if network is not None and not isinstance(network, str):
        rest["network"] = user_network.name_of(network)
    world = _make_env(env, own.get("deadline"))
    table = tuned_for(found.name, world.spec.id) if tuned and config is None else {}
    tuned_own, tuned_rest = split_fields(table)
    options, plan, unused = resolve_options(found.card.lanes, tuned_own, own)
    config = _fill_config(found, config, tuned_rest | rest)
    if "demonstrations" in parts:
        config = datasets.with_absolute_path(config)
    if not is_builtin(world):  # the project's own tests check those
        with report_if_process_dies(timeouts_for(options.deadline).first):
            check(world)
    task = Task(
        _build(found, parts, config, options, world, network),
        world,
        seed,
        options.lanes,
        options.block or options.lanes,
    )
    if "on" not in own and plan.copies("gradient") > 1:
        here = lower(task, plan, in_driver=True)
        if here.kind is Kind.DATA_PARALLEL:  # one program on all devices
            options = dataclasses.replace(options, on=registry.IN_DRIVER)
    learner = bytes_of(jax.eval_shape(partial(initial.init_learner, task), np.uint32(0)))
    machine = jax_process.configure_jax(_draw_rows(task, config) * learner / 4)
    check_size(task, options.on, learner)
    check_plan(task, plan, options, found.name)
    used = {k: v for k, v in table.items() if k not in {*own, *rest, *unused}}
    return Setup(found.name, config, options, used, task, plan, machine)


def _configure_jax(own: dict[str, Any]) -> None:
    """Set up JAX, with a device for each copy that may become part of one program."""
    if own.get("on") == registry.IN_DRIVER and isinstance(text := own.get("plan"), str):
        plan = parse(text, own.get("lag"), own.get("free"))
        jax_process.request_devices(devices_for(plan))
    jax_process.configure_jax()


def _make_env(env: Any, deadline: Any) -> Env | HostWorld:
    if is_builtin(env):  # the project's own tests run those
        return make(env)
    valid = isinstance(deadline, int | float) and 0 < deadline <= MAX_SECONDS  # else refused later
    with report_if_process_dies(timeouts_for(deadline if valid else Options.deadline).first):
        return make(env)


def _fill_config(found: catalogue.Entry, config: Any, fields: dict[str, Any]) -> Any:
    """The given config, or else the default one, with some fields replaced."""
    if config is None and found.config:
        config = found.config()
    if config is not None:
        return override_fields(config, fields)
    if fields:
        raise RondelError(
            f"{found.name} has no Config, so {', '.join(fields)} can't be set. Define a dataclass "
            "Config beside its make, or pass config=…."
        )
    return None


def _build(
    found: catalogue.Entry,
    parts: Set[str],
    config: Any,
    options: Options,
    world: Env | HostWorld,
    network: Any,
) -> Algorithm:
    """Make the algorithm, with the optional parts that its `make` takes, and wrap it."""
    spec = world.spec._replace(lanes=options.lanes)
    wrappers = [n for n in ("normalise_observations", "scale_rewards") if getattr(options, n)]
    given: dict[str, Any] = {}
    if "network" in parts and ":" in (path := str(getattr(config, "network", ""))):
        given["network"] = user_network.load(path if network is None else network, spec)
    if "demonstrations" in parts:
        given["demonstrations"] = datasets.read(getattr(config, "demonstrations", ""), spec)
    if "model" in parts:
        given["model"] = world if isinstance(world, Env) else None
        if wrappers:
            raise RondelError(
                f"{found.name} plans ahead with the environment's own observations and rewards. "
                f"Leave out {' and '.join(wrappers)}."
            )
    algorithm = found.make(config, spec, **given)
    if not isinstance(algorithm, Algorithm):
        raise RondelError(f"{found.name} must return an Algorithm, got {type(algorithm).__name__}.")
    if options.scale_rewards:
        if getattr(config, "demonstrations", None):
            raise RondelError(
                "scale_rewards can't scale the rewards of demonstrations. Leave out one of the two."
            )
        discount = getattr(config, "discount", 0.99)
        algorithm = with_reward_scaling(algorithm, spec.lanes, discount)
    if options.normalise_observations:
        algorithm = with_observation_normalisation(algorithm, spec)
    return algorithm


def _draw_rows(task: Task, config: Any) -> float:
    """The rows of a draw, as far as the names of its fields tell."""
    length = getattr(config, "sequence", 1) if hasattr(config, "burn_in") else 1
    whole = task.lanes * task.algorithm.rollout / getattr(config, "minibatches", 1)
    return length * getattr(config, "batch", 0) or whole
