"""Environments by name.

Every id belongs to a world: "jax:CartPole-v1", "gymnasium:CartPole-v1", "envpool:Pong-v5",
"probe:delay". Arguments of an environment may follow its id: "envpool:Pong-v5?episodic_life=true".
One of the user's own is named by where it is: "package.module:name". Nothing heavy is imported
until an environment of its world is made.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from rondel.envs.arguments import OF_GAMES, nearest, refuse_unknown, split
from rondel.envs.errors import EnvError
from rondel.envs.guard.crash_report import note_attempt
from rondel.envs.id_suggestions import suggest_ids
from rondel.errors import RondelError
from rondel.types import Env, HostWorld

WORLDS = ("jax", "gymnasium", "gymnax", "pgx", "envpool", "envpool-xla", "probe")

CLASSICS = {
    "CartPole-v1": "cartpole",
    "Acrobot-v1": "acrobot",
    "MountainCar-v0": "mountain_car",
    "MountainCarContinuous-v0": "mountain_car_continuous",
    "Pendulum-v1": "pendulum",
}
"""Gymnasium's classics in the world `jax`, and the module in `envs.classic` that makes each."""

GAMES = {"TicTacToe-v0": "tic_tac_toe", "ConnectFour-v0": "connect_four"}
"""Games for two in the world `jax`, and the module in `envs.games` that makes each."""

_MODULES = {name: f"classic.{module}" for name, module in CLASSICS.items()}
_MODULES |= {name: f"games.{module}" for name, module in GAMES.items()}
_MODULES |= {"KeyDoor-v0": "key_door"}
"""All ids of the world `jax`, and the module in `envs` that makes each."""

PROBES = ("one", "observation", "delay", "action", "both", "memory", "continuous")
"""The ids of the world `probe`, each a function in `envs.probes`."""


def make(env: Any) -> Env | HostWorld:
    """The environment that is meant by `env`.

    That is an id, a traceable `Env`, a `HostWorld`, an environment of Gymnasium, old Gym or dm_env,
    or a function that makes any of these, without arguments or with a `seed`; or where one of these
    is to be imported from, "module:name". An id without a world takes the first world that has it:
    jax, then gymnasium, then envpool.

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
        note_attempt(f"own:{getattr(env, '__name__', type(env).__name__)}", "its making")
        made = call(env)
        return made if isinstance(made, Env | HostWorld) else from_factory(env, made)
    raise RondelError(
        f"{env!r} is no environment: give an id such as 'CartPole-v1', an Env, a gymnasium.Env, "
        "a dm_env.Environment, or a function without arguments that makes one."
    )


def known_ids() -> dict[str, list[str]]:
    """The ids of each world, without its name; Gymnasium's are the ones registered by now.

    EnvPool's are there if it is installed; its world `envpool-xla` has the same ones.
    """
    from rondel.envs import gymnax, pgx
    from rondel.envs.gymnasium.make import registered

    found = {"jax": list(_MODULES), "gymnasium": registered(), "gymnax": gymnax.registered()}
    found["pgx"] = pgx.registered()
    if is_installed("envpool"):
        from rondel.envs.envpool import pool

        found["envpool"] = pool.registered()
    return found | {"probe": list(PROBES)}


def is_installed(package: str) -> bool:
    """Could it be imported?"""
    return find_spec(package) is not None


def is_builtin(env: Env | HostWorld) -> bool:
    """Is it one of the environments that Rondel itself brings?"""
    world, _, name = env.spec.id.partition(":")
    return (world == "jax" and split(name)[0] in _MODULES) or (world == "probe" and name in PROBES)


def id_without_world(env_id: str) -> str:
    """The id without its world and arguments: that of "jax:CartPole-v1" is "CartPole-v1"."""
    world, _, name = env_id.partition(":")
    return (name if world in WORLDS else env_id).partition("?")[0]


def _by_id(env_id: str) -> Env | HostWorld:
    world, colon, name = env_id.partition(":")
    if not colon or "?" in world:
        world, name = _fastest(env_id), env_id
    if world == "jax" and split(name)[0] in _MODULES:
        return _own(*split(name))
    if world == "probe" and name in PROBES:
        return _call("rondel.envs.jax.probes", name)
    note_attempt(f"{world}:{name}", "its making")
    if world == "gymnasium":
        from rondel.envs.gymnasium.make import from_id, is_registered

        if is_registered(name):
            return from_id(name)
    if world == "envpool":
        from rondel.envs.envpool import pool

        return pool.from_id(name)
    if world == "envpool-xla":
        from rondel.envs.envpool import xla_pool

        return xla_pool.from_id(name)
    if world == "gymnax":
        from rondel.envs import gymnax

        if gymnax.is_registered(name):
            return gymnax.from_id(name)
    if world == "pgx":
        from rondel.envs import pgx

        return pgx.from_id(name)
    if world in WORLDS:
        raise RondelError(f"There is no environment {env_id!r}.{_near(env_id)}")
    return make(_imported(env_id, world, name))


def _imported(env_id: str, module: str, name: str) -> Any:
    """What a module has by that name: an environment, or what makes one."""
    found = None
    if all(part.isidentifier() for part in (*module.split("."), name)):
        try:
            found = import_module(module)
        except ModuleNotFoundError as error:
            if not f"{module}.".startswith(f"{error.name}."):  # it is there, and misses another
                raise EnvError(f"{env_id} can't be taken from its module: {error}") from error
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise EnvError(f"{env_id} can't be taken from its module: {said}") from error
    if found is None:
        raise RondelError(
            f"There is no world {module!r} to take {env_id!r} from, nor such a module; the worlds "
            f"are {', '.join(WORLDS)}. (A Gymnasium id with a module to import first is written "
            f"gymnasium:{env_id}, an environment of your own module:name.)"
        )
    if not hasattr(found, name):
        there = get_close_matches(name, vars(found), n=1)
        hint = f" Near it: {module}:{there[0]}." if there else ""
        raise RondelError(f"The module {module} has no {name!r}.{hint}")
    return getattr(found, name)


def _fastest(name: str) -> str:
    """The world to take an id from that names none."""
    bare, arguments = split(name)
    if bare in _MODULES:
        unknown = arguments.keys() - _arguments(bare)
        # what is none of ours may be an argument of Gymnasium's, unless it was hardly that
        if bare not in CLASSICS or all(nearest(word, _arguments(bare)) for word in unknown):
            return "jax"
    from rondel.envs.gymnasium.make import is_registered

    if not is_registered(name) and is_installed("envpool"):
        from rondel.envs.envpool import pool

        if bare in pool.registered():
            return "envpool"
    return "gymnasium"


def _own(name: str, arguments: dict[str, Any]) -> Env:
    refuse_unknown(f"jax:{name}", arguments, _arguments(name))
    env: Env = import_module(f"rondel.envs.jax.{_MODULES[name]}").make(**arguments)
    return env


def _arguments(name: str) -> set[str]:
    """The arguments that one of our own environments has."""
    if name in GAMES:
        return set(OF_GAMES)
    return {"velocities"} if name == "CartPole-v1" else set()


def _call(module: str, function: str) -> Env:
    env: Env = getattr(import_module(module), function)()
    return env


def _near(env_id: str) -> str:
    """The nearest ids that there are, as a sentence.

    Worlds are left out of it: of two short names they would be most of what is alike.
    """
    listed, wanted = known_ids(), env_id.partition(":")[0]
    meant: dict[str, str] = {}
    for world in sorted(listed, key=lambda world: world != wanted):  # then as a bare id is sought
        meant = {name.lower(): f"{world}:{name}" for name in listed[world]} | meant
    found = suggest_ids(id_without_world(env_id).rpartition(":")[2], meant)
    hint = f" Near it: {', '.join(found)}." if found else ""
    if not is_installed("envpool"):
        hint += ' EnvPool has many more, such as Pong-v5: pip install "rondel[envpool]".'
    return hint
