"""Environments by name.

Every id belongs to a world: "jax:CartPole-v1", "gymnasium:CartPole-v1", "probe:delay". Nothing
heavy is imported until an environment of its world is made.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Any

from rondel.errors import RondelError
from rondel.types import Env, HostWorld

WORLDS = ("jax", "gymnasium", "probe")

CLASSICS = {
    "CartPole-v1": "cartpole",
    "Acrobot-v1": "acrobot",
    "MountainCar-v0": "mountain_car",
    "MountainCarContinuous-v0": "mountain_car_continuous",
    "Pendulum-v1": "pendulum",
}
"""The ids of the world `jax`, and the module in `envs.classic` that makes each."""

PROBES = ("one", "observation", "delay", "action", "both", "memory", "continuous")
"""The ids of the world `probe`, each a function in `envs.probes`."""


def make(env: Any) -> Env | HostWorld:
    """The environment that is meant by `env`.

    That is an id, a traceable `Env`, a `HostWorld`, a gymnasium.Env, or a function without
    arguments that makes any of these. An id without a world takes the fastest world that has it:
    jax, then gymnasium.

    >>> make("CartPole-v1").spec.id
    'jax:CartPole-v1'
    """
    if isinstance(env, Env | HostWorld):
        return env
    if isinstance(env, str):
        return _by_id(env)
    from rondel.envs.gym.worlds import from_factory, from_instance, is_gymnasium

    if is_gymnasium(env):
        return from_instance(env)
    if callable(env):
        made = env()
        return made if isinstance(made, Env | HostWorld) else from_factory(env, made)
    raise RondelError(
        f"{env!r} is no environment: give an id such as 'CartPole-v1', an Env, a gymnasium.Env, "
        "or a function without arguments that makes one."
    )


def names() -> dict[str, list[str]]:
    """The ids of each world, without its name; Gymnasium's are the ones registered by now."""
    from rondel.envs.gym.worlds import registered

    return {"jax": list(CLASSICS), "gymnasium": registered(), "probe": list(PROBES)}


def is_ours(env: Env | HostWorld) -> bool:
    """Is it one of the environments that Rondel itself brings?"""
    world, _, name = env.spec.id.partition(":")
    return (world == "jax" and name in CLASSICS) or (world == "probe" and name in PROBES)


def bare_id(env_id: str) -> str:
    """The id without its world: that of "jax:CartPole-v1" is "CartPole-v1"."""
    world, _, name = env_id.partition(":")
    return name if world in WORLDS else env_id


def _by_id(env_id: str) -> Env | HostWorld:
    world, colon, name = env_id.partition(":")
    if not colon:
        world, name = "jax" if env_id in CLASSICS else "gymnasium", env_id
    if world == "jax" and name in CLASSICS:
        return _call(f"rondel.envs.classic.{CLASSICS[name]}", "make")
    if world == "probe" and name in PROBES:
        return _call("rondel.envs.probes", name)
    if world == "gymnasium":
        from rondel.envs.gym.worlds import from_id, is_registered

        if is_registered(name):
            return from_id(name)
    if world in WORLDS:
        raise RondelError(f"There is no environment {env_id!r}.{_near(env_id)}")
    raise RondelError(
        f"There is no world {world!r} to take {env_id!r} from; the worlds are {', '.join(WORLDS)}. "
        f"(A Gymnasium id with a module to import first is written gymnasium:{env_id}.)"
    )


def _call(module: str, function: str) -> Env:
    env: Env = getattr(import_module(module), function)()
    return env


def _near(env_id: str) -> str:
    """The nearest ids that there are, as a sentence."""
    full = [f"{world}:{name}" for world, ids in names().items() for name in ids]
    meant = {bare_id(name).lower(): name for name in reversed(full)} | {n.lower(): n for n in full}
    close = difflib.get_close_matches(env_id.lower(), meant, n=6)
    found = list(dict.fromkeys(meant[name] for name in close))[:3]
    return f" Near it: {', '.join(found)}." if found else ""
