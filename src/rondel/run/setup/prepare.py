"""A run before its first round: its algorithm, environment and plan, found, built and checked."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Set
from importlib import import_module
from math import lcm
from types import ModuleType
from typing import Any, NamedTuple

from rondel.algorithms import catalogue
from rondel.algorithms.wrappers import with_observation_normalisation, with_reward_scaling
from rondel.envs.guard.check import check
from rondel.envs.guard.crash_report import report_if_process_dies
from rondel.envs.registry import id_without_world, is_builtin, make, world_of
from rondel.errors import OwnCodeError, RondelError
from rondel.execution.backends import registry
from rondel.execution.backends.lowering import Kind, Lowering, devices_for, lower
from rondel.execution.stages import labelling, shapes
from rondel.execution.stages.task import Task, bytes_of, check_fits_in_memory
from rondel.execution.telemetry.timeouts import timeouts_for
from rondel.formatting import divisors, join_words, nearest
from rondel.nets.torso import described
from rondel.plan.parser import parse
from rondel.plan.pieces import Fault, first_fault
from rondel.plan.plan import Plan, check_fit, refusal
from rondel.run.setup import datasets, jax_process
from rondel.run.setup.options import (
    MAX_SECONDS,
    Options,
    override_fields,
    resolve_options,
    split_fields,
    tuned_for,
)
from rondel.run.setup.shape_model import ShapeModel
from rondel.spaces import zeros
from rondel.types import Algorithm, Env, EnvSpec, HostWorld, Network

_PARTS = {"network", "demonstrations", "model"}  # what a `make` may take beside config and spec
PASSED_IN = "own:"  # begins the name of a network that was passed as an argument


class Setup(NamedTuple):
    """A run before its first round."""

    name: str  # of the algorithm
    config: Any
    options: Options
    tuned: dict[str, Any]  # the fields that came from the table of tuned settings
    task: Task
    plan: Plan
    machine: str  # XLA's flags and threads, on which the last bits of a run depend
    lowering: Lowering  # how its plan runs on its backend
    env_named: str | None = None  # how its environment was asked for, if by a name

    @property
    def env_id(self) -> str:
        return self.task.env.spec.id


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
        rest["network"] = network_name(network)
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
    learner = bytes_of(shapes.learner_like(task))
    machine = jax_process.configure_jax(_draw_rows(task, config) * learner / 4)
    check_size(task, options.on, learner)
    check_plan(task, plan, options, found.name)
    used = {k: v for k, v in table.items() if k not in {*own, *rest, *unused}}
    named = env if isinstance(env, str) else None
    lowering = lower(task, plan, registry.find(options.on).in_driver)
    return Setup(found.name, config, options, used, task, plan, machine, lowering, named)


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
        if found.config and not isinstance(config, found.config):
            raise RondelError(
                f"config must be {found.name}'s Config, got {type(config).__name__}. Its fields "
                "are also arguments of their own, such as rollout=64."
            )
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
        given["network"] = load_network(path if network is None else network, spec)
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


def network_name(network: Any) -> str:
    """The name of a network that was passed as an argument, and must be passed again to resume."""
    return f"{PASSED_IN}{getattr(network, '__name__', type(network).__name__)}"


def is_own_network(kind: Any) -> bool:
    """Does this field of a Config name a network of the user's own?"""
    return isinstance(kind, str) and ":" in kind


def load_network(given: Any, spec: EnvSpec) -> Network:
    """The pair (init, apply) that is given, made by a function of the space, or either by path."""
    network = _imported(given) if isinstance(given, str) else given
    if callable(network):
        try:
            network = network(spec.observation)
        except Exception as error:
            raise OwnCodeError(
                f"{network_name(network)} can't make a network for observations "
                f"{described(zeros(spec.observation))}: {type(error).__name__}: {error}"
            ) from error
    pair = tuple(network) if isinstance(network, tuple | list) else ()
    if len(pair) != 2 or not all(map(callable, pair)):
        raise RondelError(
            "network must be a pair (init, apply), where init(key) gives parameters and "
            "apply(params, obs) features, or a function of the observation space that returns "
            f"such a pair, got {network!r}."
        )
    return Network(*pair)


def _imported(path: str) -> Any:
    """The object at "package.module:name"."""
    module, _, name = path.partition(":")
    try:
        found = import_module(module)
    except (ImportError, ValueError) as error:
        raise RondelError(
            f"network={path!r}: the module {module} can't be imported ({error}). Write a path to a "
            "network as package.module:name."
        ) from error
    if not hasattr(found, name):
        raise RondelError(f"network={path!r}: the module {module} has no {name!r}.")
    return getattr(found, name)


def _draw_rows(task: Task, config: Any) -> float:
    """The rows of a draw, as far as the names of its fields tell."""
    length = getattr(config, "sequence", 1) if hasattr(config, "burn_in") else 1
    whole = task.lanes * task.algorithm.rollout / getattr(config, "minibatches", 1)
    return length * getattr(config, "batch", 0) or whole


def check_size(task: Task, on: str | None, learner_bytes: int) -> None:
    """Refuse a run whose rewards, observations or learner are larger than this machine's memory."""
    if registry.find(on).remote:
        return
    lane = max(4 * task.algorithm.rollout, bytes_of(zeros(task.env.spec.observation)))
    check_fits_in_memory(task.lanes * lane, "A round", "a smaller rollout or fewer lanes")
    check_fits_in_memory(learner_bytes, "The learner", "a smaller network")


def check_plan(task: Task, plan: Plan, options: Options, name: str) -> None:
    """Refuse a plan that this run can't follow."""
    if plan.free and options.scale_rewards:
        raise RondelError(
            "scale_rewards needs all lanes in every round, and a free run takes lanes as they "
            "arrive. Leave out one of the two."
        )
    if task.algorithm.fresh and isinstance(task.env, Env) and not task.env.pure:
        world, bare = world_of(task.env.spec.id), id_without_world(task.env.spec.id)
        on_host = f" Use {world.on_host}:{bare}." if world and world.on_host else ""
        raise RondelError(
            f"{name} starts new episodes in every round, but {task.env.spec.id} can't start them "
            f"inside a program.{on_host}"
        )
    labels = task.algorithm.label is not None
    check_fit(
        plan,
        lanes=task.lanes,
        block=task.block,
        max_lag=task.algorithm.max_lag,
        algorithm=name,
        labels=labels,
    )
    shards = plan.copies("memory")
    if shards == plan.copies("label") == plan.copies("gradient") == 1:
        return
    # a copy sees only its own part of a draw: it could not notice that rows are left over
    rows = shards * ShapeModel(task, plan, options.on).rows
    for stage in ("label", "gradient"):
        # labels are made in whole blocks, and so don't depend on the number of copies
        block = labelling.ROWS if labels and stage == "label" else 1
        if not _splits(rows, plan.copies(stage), block):
            raise _uneven(plan, stage, rows, block)


def _splits(rows: int, copies: int, block: int) -> bool:
    """Can copies take equal parts of a batch, in whole blocks? One takes all of it."""
    return copies == 1 or rows % (copies * block) == 0


def _uneven(plan: Plan, stage: str, rows: int, block: int) -> RondelError:
    piece = plan.piece_of(stage)
    index, copies = plan.pieces.index(piece), piece.copies
    before, after = plan.pieces[:index], plan.pieces[index + 1 :]
    fits = [n for n in divisors(rows) if _splits(rows, n, block)]
    fits = [n for n in fits if not first_fault([*before, piece._replace(copies=n), *after])]
    step = lcm(plan.copies("memory"), copies * block)
    near = nearest([n for n in (rows // step * step, (rows // step + 1) * step) if n], rows)
    blocks = f" in blocks of {block}" if block > 1 else ""
    sentence = (
        f"{piece} cannot share the {rows} rows of a batch evenly{blocks}. Use "
        f"{join_words(nearest(fits, copies), 'or')} {'copy' if fits[-1] == 1 else 'copies'}, or "
        f"batches of {join_words(near, 'or')} rows."
    )
    return refusal(plan, [Fault(sentence, index)])
