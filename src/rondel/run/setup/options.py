"""What can be set of a run: `Options`, fields by name, and the tuned settings."""

from __future__ import annotations

import dataclasses
import reprlib
import types
import typing
from collections.abc import Set
from decimal import Decimal
from typing import Any

from rondel.algorithms.tuned import TUNED
from rondel.envs.registry import id_without_world
from rondel.errors import RondelError, at_least
from rondel.execution.backends import registry
from rondel.formatting import closest_words, divisors, join_words, nearest
from rondel.plan.parser import parse
from rondel.plan.plan import Plan, resolve_ranges
from rondel.plan.resources import resources_for
from rondel.run.setup import jax_process

MAX_SECONDS = 1e8  # of a deadline: system clocks don't count much further
_MAX_INTEGER = 2**40  # of any field: above it, a search for valid numbers would take for ever


@dataclasses.dataclass(frozen=True)
class Options:
    """What can be set of every run, whatever its algorithm."""

    lanes: int = 8  # environments side by side
    block: int | None = None  # lanes that act in one call; by default 8, or all if 8 doesn't fit
    plan: str = "all"  # where the ring is cut, such as "actor*4 | learner", or a preset
    lag: int | None = None  # rounds that the acting weights may be behind; by default the plan's
    free: bool | None = None  # learn from what has arrived, lag a bound; default: the plan's
    on: str | None = None  # the backend; by default processes for a cut plan, else inline
    resources: str | None = None  # what pieces request, such as "actor:cpu=1 learner:cpu=1,gpu=1"
    address: str | None = None  # a running Ray cluster to join; by default one is started here
    deadline: float = 600.0  # seconds until a copy that does not answer is restarted
    restarts: int = 20  # restarts of a copy in a row without progress
    normalise_observations: bool = False  # by their running mean and deviation
    scale_rewards: bool = False  # by the running deviation of the discounted return


def split_fields(fields: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields of `Options`, with a `Plan` among them in words; and all others."""
    names = {field.name for field in dataclasses.fields(Options)}
    own = {name: value for name, value in fields.items() if name in names}
    if isinstance(plan := own.get("plan"), Plan):
        own = {"lag": plan.lag, "free": plan.free} | own | {"plan": str(plan)}
    return own, {name: value for name, value in fields.items() if name not in names}


def tuned_for(name: str, env_id: str) -> dict[str, Any]:
    """The tuned settings of an algorithm for an environment; empty if there are none."""
    return TUNED.get(name, {}).get(id_without_world(env_id), {})


def resolve_options(
    lanes: int, tuned: dict[str, Any], given: dict[str, Any]
) -> tuple[Options, Plan, set[str]]:
    """Options without defaults left open, their plan, and the names of tuned ones not used.

    `lanes` is the algorithm's default. `given` fields override tuned ones.
    """
    options = override_fields(Options(lanes=lanes), tuned | given)
    plan = parse(options.plan, options.lag, options.free)
    unused = _conflicts(options, plan, tuned.keys() - given.keys())
    options = dataclasses.replace(options, **{name: getattr(Options, name) for name in unused})
    options = dataclasses.replace(options, block=_block(options))
    on = options.on or (registry.FOR_CUTS if plan.cut else registry.IN_DRIVER)
    options = dataclasses.replace(options, plan=str(plan), lag=plan.lag, free=plan.free, on=on)
    _check_backend(options, plan)
    return options, _resolve_copies(plan, options), unused


def _conflicts(options: Options, plan: Plan, tuned: Set[str]) -> set[str]:
    """Those of the tuned options that don't go with the plan."""
    found = set()
    if "block" in tuned and options.block is not None:
        acting = map(plan.piece_of, ("env", "policy"))
        copies = max(piece.least or piece.copies for piece in acting)  # a range takes what fits
        found |= {"block"} if options.lanes % (copies * options.block) else set()
    return found | ({"scale_rewards"} if "scale_rewards" in tuned and plan.free else set())


def block_for(lanes: int) -> int:
    """The default number of lanes that act in one call."""
    return 8 if lanes % 8 == 0 else lanes


def _block(options: Options) -> int:
    lanes, block = options.lanes, options.block
    at_least(1, lanes=lanes)
    if block is None:
        return block_for(lanes)
    if block < 1 or lanes % block:
        fits = join_words(nearest(divisors(lanes), block, most=12), "or")
        raise RondelError(f"block must divide the {lanes} lanes, got {block}. Use {fits}.")
    return block


def _check_backend(options: Options, plan: Plan) -> None:
    """Refuse options that the backend doesn't have."""
    on, backend = options.on, registry.find(options.on)
    if not 0 < options.deadline <= MAX_SECONDS:
        raise RondelError(
            f"deadline must be more than 0 and at most {MAX_SECONDS:,.0f} seconds, "
            f"got {options.deadline}."
        )
    at_least(0, restarts=options.restarts)
    if options.resources:
        resources_for(plan, options.resources)
        if not backend.takes_resources:
            able = registry.names_with("takes_resources")
            raise RondelError(f"--on {on} takes no resources. Leave them out, or use --on {able}.")
    if options.address and not backend.takes_address:
        able = registry.names_with("takes_address")
        raise RondelError(
            f"--on {on} joins no cluster, got address={options.address!r}. Use --on {able}."
        )


def _resolve_copies(plan: Plan, options: Options) -> Plan:
    """The plan with numbers for ranges of copies, but for those that follow a cluster's size."""
    if not plan.ranged:
        return plan
    elastic = registry.find(options.on).elastic
    acting = plan.piece_of("policy")
    if elastic and not (plan.free and acting.least is not None and "env" in acting.stages):
        raise RondelError(
            f"A range of copies on {options.on} must be one of actor in a free plan, got `{plan}`. "
            "Use `actor*4..16 | learner` with --free, or a number of copies."
        )
    cores = None if elastic else jax_process.cores()
    return resolve_ranges(plan, lanes=options.lanes, block=options.block or 1, cores=cores)


def override_fields(config: Any, fields: dict[str, Any]) -> Any:
    """A dataclass with some fields replaced; refuses unknown names and wrong types."""
    hints = typing.get_type_hints(type(config))
    names = [field.name for field in dataclasses.fields(config)]
    owner = f"{type(config).__module__.rpartition('.')[2]}.{type(config).__name__}"
    for name, value in fields.items():
        if name not in names:
            near = closest_words(name, names)
            hint = f"Did you mean {near}?" if near else f"Its fields are {', '.join(names)}."
            raise RondelError(f"{owner} has no field {name!r}. {hint}")
        if not fits(value, hints[name]):
            raise RondelError(
                f"{name} of {owner} must be {_words(hints[name])}, such as "
                f"{getattr(config, name)!r}, got {reprlib.repr(value)}."
            )
        for number in value if isinstance(value, tuple | list) else (value,):
            if isinstance(number, int) and abs(number) > _MAX_INTEGER:
                shown = f"{Decimal(number).normalize():.3g}"  # it may be too large for a float
                raise RondelError(f"{name} must be at most {_MAX_INTEGER:,}, got {shown}.")
    return dataclasses.replace(config, **{n: _as(v, hints[n]) for n, v in fields.items()})


def fits(value: Any, hint: Any) -> bool:
    """Does a value have the type that a hint names? True and False are not numbers."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in typing.get_args(hint))
    if origin is tuple:
        inner = typing.get_args(hint)[0]
        return isinstance(value, tuple | list) and all(fits(x, inner) for x in value)
    if origin is dict:
        return isinstance(value, dict)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _as(value: Any, hint: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return float(value) if hint is float else value


def _words(hint: Any) -> str:
    """A type in words: "float", "several ints", "str or None"."""
    if typing.get_origin(hint) is tuple:
        return f"several {typing.get_args(hint)[0].__name__}s"
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_words(part) for part in typing.get_args(hint))
    return "None" if hint is type(None) else f"{hint.__name__}"
