"""Environments by name, and the worlds that they come from: the built-in ones, and others'.

A package brings a world by an entry point in the group `rondel.worlds` that names its `World`. An
environment of the user's own is named by where it is: "package.module:name". Nothing heavy is
imported until an environment is made.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from difflib import SequenceMatcher, get_close_matches
from functools import partial
from importlib import import_module
from typing import Any

from rondel import entry_points
from rondel.envs import gymnax, pgx
from rondel.envs.envpool.world import ENVPOOL, ENVPOOL_XLA
from rondel.envs.errors import EnvError, NotAvailable, UnknownId
from rondel.envs.guard.crash_report import attempt
from rondel.envs.gymnasium.world import GYMNASIUM
from rondel.envs.jax.world import JAX, PROBE
from rondel.envs.world import Equivalent, World, split
from rondel.errors import RondelError
from rondel.formatting import closest_words, described
from rondel.types import Env, HostWorld

GROUP = "rondel.worlds"
_IN_ORDER = (JAX, GYMNASIUM, ENVPOOL, ENVPOOL_XLA, gymnax.WORLD, pgx.WORLD, PROBE)
_BUILT_IN = {world.name: world for world in _IN_ORDER}
_CLOSE = 0.6  # likeness of ids, from 0 to 1
_OLD_ATARI = re.compile(r"(NoFrameskip|Deterministic)-v\d+$")
_VERSION = re.compile(r"-v(\d+)$")
_FEW = 8  # ids, which a sentence may list
_log = logging.getLogger("rondel")


def make(env: Any) -> Env | HostWorld:
    """Make the environment that is meant by `env`.

    That is an id, a traceable `Env`, a `HostWorld`, an environment of Gymnasium, old Gym or dm_env,
    or a function that makes any of these, without arguments or with a `seed`; or where one of these
    is to be imported from, "module:name". An id without a world takes the first world that has it
    and can make it here.

    >>> make("CartPole-v1").spec.id
    'jax:CartPole-v1'
    """
    if isinstance(env, Env | HostWorld):
        return env
    if isinstance(env, str):
        return _by_id(env)
    from rondel.envs.gymnasium.make import call, from_factory, from_instance, is_understood

    if is_understood(env):
        return from_instance(env)
    if callable(env):
        with attempt(f"own:{getattr(env, '__name__', type(env).__name__)}", "make()"):
            made = call(env)
        return made if isinstance(made, Env | HostWorld) else from_factory(env, made)
    raise RondelError(
        "An environment must be an id such as 'CartPole-v1', an Env, a gymnasium.Env, a "
        f"dm_env.Environment, or a function without arguments that makes one, got {described(env)}."
    )


def names() -> list[str]:
    """All worlds that are installed, the built-in ones first; none is loaded."""
    return list(dict.fromkeys([*_BUILT_IN, *entry_points.names(GROUP)]))


def find(name: str) -> World | None:
    """The world of that name, if there is one."""
    return _BUILT_IN.get(name) or entry_points.load(GROUP, name, World)


def listing() -> list[str]:
    """A line for each world; a broken one says why."""

    def summary(name: str) -> str:
        world = find(name)
        assert world is not None
        return world.summary if world.installed else f"{world.summary} ({world.install})"

    return entry_points.lines(names(), summary)


def known_ids() -> dict[str, list[str]]:
    """The ids of each world, without its name; Gymnasium's are the ones registered by now."""
    return {world.name: list(world.ids()) for world in _worlds()}


def world_of(env_id: str) -> World | None:
    """The world of an id; None for an environment of the user's own."""
    return find(env_id.partition(":")[0])


def is_builtin(env: Any) -> bool:
    """Whether an environment, or an id, is one that Rondel itself brings."""
    env_id = env.spec.id if isinstance(env, Env | HostWorld) else env
    if not isinstance(env_id, str):
        return False
    before, colon, after = env_id.partition(":")
    world, name = (find(before), after) if colon else (_IN_ORDER[0], env_id)
    return world is not None and world.builtin and bool(world.owns(name))


def id_without_world(env_id: str) -> str:
    """The id without its world and arguments: that of "jax:CartPole-v1" is "CartPole-v1"."""
    world, _, name = env_id.partition(":")
    return (name if world in _BUILT_IN or world in names() else env_id).partition("?")[0]


def equivalents(env_id: str) -> Iterator[tuple[World, Equivalent]]:
    """The same environment in other worlds, the fastest first.

    Of Atari it is the same game, but another observation.

    >>> [there.id for _, there in equivalents("gymnasium:ALE/Pong-v5")]
    ['envpool:Pong-v5']
    """
    own, name = world_of(env_id), env_id.partition(":")[2]
    for world in _worlds() if own is not None else ():
        if world is own or world.equivalent is None or own is None or world.name == own.on_host:
            continue
        if there := world.equivalent(name):
            yield world, there


def _worlds() -> Iterator[World]:
    """All worlds but broken ones, in the order in which they are asked for an id."""
    yield from _IN_ORDER
    for name in entry_points.names(GROUP):
        try:
            if name not in _BUILT_IN and (world := find(name)):
                yield world
        except RondelError as error:
            _log.warning("%s", error)


def _by_id(env_id: str) -> Env | HostWorld:
    world_name, colon, name = env_id.partition(":")
    if not colon or "?" in world_name:
        return _in_any_world(env_id)
    world = find(world_name)
    if world is None:
        return make(_imported(env_id, world_name, name))
    try:
        if world.owns(split(name)[0]) is False:
            raise UnknownId
        return _made(world, name)
    except UnknownId:
        raise RondelError(f"There is no environment {env_id!r}.{_near(env_id)}") from None
    except NotAvailable as error:
        others = (w for w in _worlds() if w is not world and w.installed)
        there = next((f" Or use {w.name}:{name}." for w in others if w.owns(name)), "")
        raise NotAvailable(f"{error}{there}") from error.__cause__


def _made(world: World, name: str) -> Env | HostWorld:
    if world.builtin:
        return world.create(name)
    env_id = f"{world.name}:{name}"
    with attempt(env_id, "make()"):
        made = world.create(name)
    if not isinstance(made, Env | HostWorld):
        from rondel.envs.gymnasium.make import from_factory

        made = from_factory(partial(world.create, name), made, env_id)
    return made._replace(spec=made.spec._replace(id=env_id))


def _in_any_world(name: str) -> Env | HostWorld:
    """An id without a world, from the first that has it and can make it here."""
    absent: list[str] = []  # why worlds that have it can't make it
    perhaps = ""  # worlds that may have it
    for world in (w for w in _worlds() if not w.on_host):
        try:
            owns = world.owns(name)
            if owns is None and not world.installed:
                perhaps += f" {world.name} may have it ({world.install})."
            if not owns:
                continue
            env = _made(world, name)
        except RondelError as error:
            if not absent and not isinstance(error, NotAvailable):
                raise
            absent.append(str(error))
        else:
            if absent:
                _log.warning("Using %s, since %s", env.spec.id, " ".join(absent))
            return env
    if absent:
        raise NotAvailable(" ".join(absent))
    raise RondelError(f"There is no environment {name!r}.{_near(name)}{perhaps}")


def _imported(env_id: str, module: str, name: str) -> Any:
    """What a module has by that name: an environment, or what makes one."""
    found = None
    if all(part.isidentifier() for part in (*module.split("."), name)):
        try:
            found = import_module(module)
        except ModuleNotFoundError as error:
            if not f"{module}.".startswith(f"{error.name}."):  # it is there, and misses another
                raise EnvError(f"{env_id} can't be imported: {error}") from error
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise EnvError(f"{env_id} can't be imported: {why}") from error
    if found is None:
        raise RondelError(
            f"{env_id!r} must begin with a world or a module that can be imported, got "
            f"{module!r}. Worlds are {', '.join(names())}; an environment of your own is "
            f"module:name, and a Gymnasium id with a module to import first is "
            f"{GYMNASIUM.name}:{env_id}."
        )
    if not hasattr(found, name):
        there = closest_words(name, vars(found))
        hint = f" Did you mean {module}:{there}?" if there else ""
        raise RondelError(f"The module {module} has no {name!r}.{hint}")
    return getattr(found, name)


def _near(env_id: str) -> str:
    """The nearest ids that there are, as a sentence; of a world that is named, its own alone."""
    everywhere: dict[str, str] = {}
    for world, names in known_ids().items():  # in the order in which a bare id is sought
        everywhere = {name.lower(): f"{world}:{name}" for name in names} | everywhere
    asked = id_without_world(env_id).rpartition(":")[2]
    sought = _OLD_ATARI.sub("-v5", asked).lower()
    if sought != asked.lower() and sought in everywhere:
        return f" Did you mean {everywhere[sought]}?"
    own = _ids_of(env_id.partition(":")[0])
    meant = {name.lower(): there for name, there in own.items()} or everywhere
    newest: dict[str, str] = {}
    for name in sorted(meant, key=_version):
        newest[_VERSION.sub("", name)] = name
    close = get_close_matches(sought, newest.values(), n=6, cutoff=_CLOSE)
    # in short names the version alone is half of the similarity
    bare = _VERSION.sub("", sought)
    alike: dict[str, str] = {}  # by the name alone, since phys2d/CartPole-v1 is a CartPole-v1 too
    for name in close:
        if SequenceMatcher(None, bare, _VERSION.sub("", name)).ratio() >= _CLOSE:
            alike.setdefault(name.rpartition("/")[2], meant[name])
    if alike:
        return f" Did you mean {' or '.join(list(alike.values())[:2])}?"
    return f" {env_id.partition(':')[0]} has {', '.join(own)}." if 0 < len(own) <= _FEW else ""


def _ids_of(world_name: str) -> dict[str, str]:
    """The full ids of a world by those without it; those that it has from another are its too."""
    world = find(world_name)
    names = list(world.ids()) if world else []
    if world and not names and world.on_host:
        names = list(_ids_of(world.on_host))
    return {name: f"{world_name}:{name}" for name in names}


def _version(name: str) -> int:
    found = _VERSION.search(name)
    return int(found[1]) if found else -1
