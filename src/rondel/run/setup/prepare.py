"""What was asked for, made definite: from names and fields to a task that can run."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Set
from functools import partial
from math import lcm
from types import ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np

from rondel.algorithms import catalogue
from rondel.algorithms.tuned import TUNED
from rondel.algorithms.wrappers import with_observation_normalisation, with_reward_scaling
from rondel.envs.guard.check import check
from rondel.envs.guard.crash_report import report_if_process_dies
from rondel.envs.registry import id_without_world, is_builtin, make
from rondel.errors import RondelError, at_least
from rondel.execution.backends import registry
from rondel.execution.stages import learning
from rondel.execution.stages.memory_limit import check_fits_in_memory
from rondel.execution.stages.task import Task
from rondel.execution.telemetry.timeouts import timeouts_for
from rondel.execution.workers import data_parallel, gradient_parallel
from rondel.formatting import divisors, join_words, nearest
from rondel.plan.parser import parse
from rondel.plan.pieces import Piece, error_at, write
from rondel.plan.plan import Plan
from rondel.plan.resources import resources_for
from rondel.plan.rules import check_fit, first_fault, resolve_ranges
from rondel.run.setup import datasets, jax_process, user_network
from rondel.run.setup.config_overrides import override_fields
from rondel.run.setup.memory_shapes import bytes_of, shard_like
from rondel.spaces import zeros
from rondel.types import Algorithm, Env, EnvSpec, HostWorld

_PATIENCE = 1e8  # seconds: clocks of the system don't count much further


@dataclasses.dataclass(frozen=True)
class Options:
    """What can be set of a run, whatever its algorithm."""

    lanes: int = 8  # environments side by side
    block: int | None = None  # lanes that act in one call; by default 8, or all if 8 doesn't fit
    plan: str = "all"  # where the ring is cut, such as "actor*4 | learner", or a preset
    lag: int | None = None  # rounds that the acting weights may be behind; by default the plan's
    free: bool | None = None  # learn from what comes first, the lag a bound; by default the plan's
    on: str | None = None  # the backend; by default processes for a cut plan, else inline
    resources: str | None = None  # what pieces ask for, such as "actor:cpu=1 learner:cpu=1,gpu=1"
    address: str | None = None  # of a Ray cluster that runs; by default one is started here
    deadline: float = 600.0  # seconds for an answer: a copy that takes longer is started again
    restarts: int = 20  # of a copy that died, one after the other without getting any further
    normalise_observations: bool = False  # by running mean and deviation
    scale_rewards: bool = False  # by the running deviation of the discounted return


class Setup(NamedTuple):
    """A run, before its first round."""

    name: str  # of the algorithm
    config: Any
    options: Options
    tuned: dict[str, Any]  # which of these came from the table of tuned settings
    task: Task
    plan: Plan

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
    """Find the algorithm and the environment, settle every field, check what can be checked.

    `fields` are those of the algorithm's Config and of `Options` by name. Precedence: defaults <
    tuned < fields; a `config` bypasses the tuned settings.
    """
    found = catalogue.find(algorithm)
    name, build = found.name, found.make
    fields, chosen = dict(fields or {}), {}
    _offer_devices(fields)
    with report_if_process_dies(_making_patience(fields.get("deadline"))):
        world = make(env)
    brought = fields.get("network") if user_network.takes_network(build) else None
    if brought is not None and not isinstance(brought, str):
        fields["network"] = user_network.name_of(brought)
    if config is None:
        config = found.config and found.config()
        chosen = tuned_for(name, world.spec.id) if tuned else {}
    own, rest = split(chosen | fields)
    options = Options(lanes=found.card.lanes)
    options = override_fields(options, _spelled(own))
    options, dropped = _without_what_clashes(options, chosen.keys() - fields.keys())
    chosen = {name: value for name, value in chosen.items() if name not in dropped}
    options, plan = _planned(dataclasses.replace(options, block=_block(options)))
    if config is not None:
        config = override_fields(config, rest)
    elif rest:
        raise RondelError(
            f"{', '.join(rest)} can't be set on {name}, which came without a config: "
            "pass config=… with your own make."
        )
    if datasets.takes_demonstrations(build):
        config = datasets.absolute_path(config)
    _check_env(world, options.deadline)
    spec = world.spec._replace(lanes=options.lanes)
    _check_planner(name, build, options)
    built = _built(build, config, world, spec, brought)
    if not isinstance(built, Algorithm):
        raise RondelError(
            f"{name}'s make returned a {type(built).__name__}; it must return an Algorithm."
        )
    task = Task(
        _wrapped(built, options, config, spec),
        world,
        seed,
        options.lanes,
        options.block or options.lanes,
    )
    if "on" not in fields and data_parallel.fits(
        task, plan
    ):  # then it is one program over the devices
        options = dataclasses.replace(options, on=registry.IN_DRIVER)
    learner = bytes_of(jax.eval_shape(partial(learning.init_learner, task), np.uint32(0)))
    jax_process.configure_jax(_rows(task, config) * learner / 4)  # before anything starts JAX
    if not registry.find(options.on).remote:
        _check_size(task, learner)
    check_plan(task, plan, options, name)
    told = {k: v for k, v in chosen.items() if k not in fields}
    return Setup(name, config, options, told, task, plan)


def _built(build: Any, config: Any, world: Env | HostWorld, spec: EnvSpec, brought: Any) -> Any:
    """The algorithm, with an own network, demonstrations and a model, where it takes them."""
    parts: dict[str, Any] = {}
    kind = getattr(config, "network", "")
    if user_network.takes_network(build) and user_network.is_own(kind):
        if brought is None or isinstance(brought, str):
            brought = user_network.imported(kind)
        parts["network"] = user_network.as_network(brought, spec.observation)
    if datasets.takes_demonstrations(build):
        shown = datasets.read(getattr(config, "demonstrations", ""), spec)
        parts["demonstrations"] = shown
    if _plans(build):
        parts["model"] = world if isinstance(world, Env) else None
    return build(config, spec, **parts)


def _plans(build: Any) -> bool:
    """Does an algorithm's `make` take the environment, to look ahead in it?"""
    return "model" in inspect.signature(build).parameters


def _check_planner(name: str, build: Any, options: Options) -> None:
    changed = [f for f in ("normalise_observations", "scale_rewards") if getattr(options, f)]
    if changed and _plans(build):
        raise RondelError(
            f"{name} looks ahead in its environment, from what is seen there and to what is earned "
            f"there: leave {' and '.join(changed)} out."
        )


def _rows(task: Task, config: Any) -> float:
    """How many a draw has, as far as the names of its fields tell."""
    length = getattr(config, "sequence", 1) if hasattr(config, "burn_in") else 1
    whole = task.lanes * task.algorithm.rollout / getattr(config, "minibatches", 1)
    return length * getattr(config, "batch", 0) or whole


def _check_size(task: Task, learner: int) -> None:
    """Refuse what no array could hold: the least that a round's rewards and observations take."""
    seen = max(4 * task.algorithm.rollout, bytes_of(zeros(task.env.spec.observation)))
    check_fits_in_memory(task.lanes * seen, "A round", "a smaller rollout or number of lanes")
    check_fits_in_memory(learner, "The learner", "a smaller network")


def check_plan(task: Task, plan: Plan, options: Options, name: str) -> None:
    """Refuse a plan that this run can't follow."""
    if plan.free and options.scale_rewards:
        raise RondelError(
            "scale_rewards follows the return of every lane from round to round, and a free run "
            "takes lanes as they come: leave one of the two out."
        )
    if task.algorithm.fresh and isinstance(task.env, Env) and not task.env.pure:
        raise RondelError(
            f"{name} starts new episodes in every round, and the lanes of {task.env.spec.id} can't "
            "be started inside of a program: "
            f"envpool:{id_without_world(task.env.spec.id)} would work."
        )
    check_fit(
        plan,
        lanes=task.lanes,
        block=task.block,
        max_lag=task.algorithm.max_lag,
        algorithm=name,
        labels=task.algorithm.label is not None,
    )
    _check_copies(task, plan, options.on)


def _check_copies(task: Task, plan: Plan, on: str | None) -> None:
    """Refuse copies of label and gradient that can't share what memory draws.

    A copy sees its own part and no other: it would not know that rows are left over.
    """
    shards = plan.copies("memory")
    if shards == plan.copies("label") == plan.copies("gradient") == 1:
        return
    rows = shards * shard_like(task, shards, on).rows
    labels = task.algorithm.label is not None
    for stage in ("label", "gradient"):
        # labels are made in whole blocks, and are the same however many copies make them
        block = learning.ROWS if labels and stage == "label" else 1
        if not _shared(rows, plan.copies(stage), block):
            raise _unshared(plan, stage, rows, block)


def _shared(rows: int, copies: int, block: int) -> bool:
    """Can so many copies take even parts of a batch, in whole blocks? One takes all of it."""
    return copies == 1 or rows % (copies * block) == 0


def _unshared(plan: Plan, stage: str, rows: int, block: int) -> RondelError:
    piece = plan.piece_of(stage)
    index, copies = plan.pieces.index(piece), piece.copies

    def with_copies(n: int) -> list[Piece]:
        pieces = list(plan.pieces)
        pieces[index] = piece._replace(copies=n)
        return pieces

    fits = [n for n in divisors(rows) if _shared(rows, n, block)]
    fits = [n for n in fits if not first_fault(with_copies(n))]
    step = lcm(plan.copies("memory"), copies * block)
    near = nearest([n for n in (rows // step * step, (rows // step + 1) * step) if n], rows)
    blocks = f" in blocks of {block}" if block > 1 else ""
    written = write(plan.pieces)
    return error_at(
        f"{piece} can't share the {rows} rows of a drawn batch evenly{blocks}; "
        f"{join_words(nearest(fits, copies), 'or')} {'copy' if fits[-1] == 1 else 'copies'}, or "
        f"batches of {join_words(near, 'or')} rows, would work.",
        written.text,
        (written.stages[index][0][0], written.copies[index][1]),
    )


def _without_what_clashes(options: Options, tuned: Set[str]) -> tuple[Options, set[str]]:
    """Options without those that can't be had here and were only tuned, and the names of these."""
    plan, dropped = parse(options.plan, options.lag, options.free), set[str]()
    if "block" in tuned and options.block is not None:
        acting = map(plan.piece_of, ("env", "policy"))
        copies = max(piece.least or piece.copies for piece in acting)  # a range finds what fits
        dropped |= {"block"} if options.lanes % (copies * options.block) else set()
    if "scale_rewards" in tuned and plan.free:
        dropped |= {"scale_rewards"}
    default = {name: getattr(Options, name) for name in dropped}
    return dataclasses.replace(options, **default), dropped


def tuned_for(name: str, env_id: str) -> dict[str, Any]:
    """The tuned settings of an algorithm for an environment, by name; none if there are none."""
    return TUNED.get(name, {}).get(id_without_world(env_id), {})


def split(fields: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields of `Options`, and all others."""
    own = {field.name for field in dataclasses.fields(Options)}
    mine = {name: value for name, value in fields.items() if name in own}
    return mine, {name: value for name, value in fields.items() if name not in own}


def block_for(lanes: int) -> int:
    """Lanes that act in one call, where nobody says otherwise."""
    return 8 if lanes % 8 == 0 else lanes


def _block(options: Options) -> int:
    lanes, block = options.lanes, options.block
    if lanes < 1:
        raise RondelError(f"lanes={lanes} leaves nothing to act in: 1 or more would work.")
    if block is None:
        return block_for(lanes)
    if block < 1 or lanes % block:
        fits = nearest(divisors(lanes), block, most=12)
        raise RondelError(
            f"block={block} doesn't divide the {lanes} lanes: {', '.join(map(str, fits))} would."
        )
    return block


def _spelled(own: dict[str, Any]) -> dict[str, Any]:
    """A `Plan` among the options in their words; other options go before what it says."""
    plan = own.get("plan")
    if not isinstance(plan, Plan):
        return own
    return {"lag": plan.lag, "free": plan.free} | own | {"plan": str(plan)}


def _planned(options: Options) -> tuple[Options, Plan]:
    """The plan as a value, and the options with plain words for it."""
    plan = parse(options.plan, options.lag, options.free)
    on = options.on or (registry.FOR_CUTS if plan.cut else registry.IN_DRIVER)
    backend = registry.find(on)
    resources_for(plan, options.resources or "")  # refuse nonsense before anything starts
    if not 0 < options.deadline <= _PATIENCE:
        raise RondelError(
            f"deadline={options.deadline} can't work: seconds, more than 0 and at most "
            f"{_PATIENCE:g}, would."
        )
    at_least(0, restarts=options.restarts)
    if options.resources and not backend.takes_resources:
        able = registry.names_with("takes_resources")
        raise RondelError(f"--on {on} takes no resources. Leave them out, or use --on {able}.")
    if options.address and not backend.takes_address:
        able = registry.names_with("takes_address")
        raise RondelError(
            f"--on {on} joins no cluster, got address={options.address!r}. Use --on {able}."
        )
    options = dataclasses.replace(options, plan=str(plan), lag=plan.lag, free=plan.free, on=on)
    return options, _settled(plan, options)


def _offer_devices(fields: dict[str, Any]) -> None:
    """Before anything starts JAX: a device for each copy that could be a part of one program."""
    own = _spelled(split(fields)[0])
    if own.get("on") == registry.IN_DRIVER and isinstance(text := own.get("plan"), str):
        plan = parse(text, own.get("lag"), own.get("free"))
        jax_process.request_devices(
            max(data_parallel.copies_in(plan), gradient_parallel.parts_in(plan))
        )


def _settled(plan: Plan, options: Options) -> Plan:
    """How many copies a range means: as many as this machine has cores, or as Ray's nodes hold."""
    follows = registry.find(options.on).elastic and plan.ranged
    acting = plan.piece_of("policy")
    whole = acting.least is not None and "env" in acting.stages
    if follows and not (plan.free and whole):
        raise RondelError(
            f"A range of copies on {options.on} must be one of actor in a free plan, got `{plan}`. "
            "Use `actor*4..16 | learner` with --free, or a number of copies."
        )
    room = None if follows else jax_process.cores()
    return resolve_ranges(plan, lanes=options.lanes, block=options.block or 1, cores=room)


def _check_env(world: Env | HostWorld, deadline: float) -> None:
    if not is_builtin(world):  # ours are checked in our own tests
        with report_if_process_dies(timeouts_for(deadline).first):
            check(world)


def _making_patience(deadline: Any) -> float:
    """Seconds to make an environment; a deadline that is none is refused later, with all else."""
    sound = isinstance(deadline, int | float) and 0 < deadline <= _PATIENCE
    return timeouts_for(deadline if sound else Options.deadline).first


def _wrapped(algorithm: Algorithm, options: Options, config: Any, spec: EnvSpec) -> Algorithm:
    if options.scale_rewards:
        if getattr(config, "demonstrations", None):
            raise RondelError(
                "scale_rewards divides by what was seen so far, and the rewards of demonstrations "
                "stay as they are: leave one of the two out."
            )
        discount = getattr(config, "discount", 0.99)
        algorithm = with_reward_scaling(algorithm, spec.lanes, discount)
    if options.normalise_observations:
        algorithm = with_observation_normalisation(algorithm, spec)
    return algorithm
