"""The worlds `jax` and `probe`: Rondel's own environments. Importing this imports no jax."""

from __future__ import annotations

from importlib import import_module

from rondel.envs.world import Equivalent, World, refuse_unknown, split
from rondel.formatting import closest_words
from rondel.types import Env

CLASSICS = {
    "CartPole-v1": "cartpole",
    "Acrobot-v1": "acrobot",
    "MountainCar-v0": "mountain_car",
    "MountainCarContinuous-v0": "mountain_car:make_continuous",
    "Pendulum-v1": "pendulum",
}
"""Gymnasium's classics, and the module in `classic` that makes each, by `make` or as it says."""

GAMES = {"TicTacToe-v0": "tic_tac_toe", "ConnectFour-v0": "connect_four"}

_MODULES = {name: f"classic.{module}" for name, module in CLASSICS.items()}
_MODULES |= {name: f"games.{module}" for name, module in GAMES.items()}
_MODULES |= {"KeyDoor-v0": "key_door"}
"""All ids, and the module that makes each."""

GAME_ARGUMENTS = ("opponent", "simulations")  # of games for two

PROBES = ("one", "observation", "delay", "action", "both", "memory", "continuous")
"""The ids of the world `probe`, each a function in `probes`."""


def _make(name: str) -> Env:
    bare, arguments = split(name)
    refuse_unknown(f"jax:{bare}", arguments, _arguments(bare))
    module, _, make = _MODULES[bare].partition(":")
    env: Env = getattr(import_module(f"rondel.envs.jax.{module}"), make or "make")(**arguments)
    return env


def _has(name: str) -> bool:
    """Whether it is one of ours; what is not our argument may be Gymnasium's, unless misspelt."""
    bare, arguments = split(name)
    if bare not in CLASSICS:
        return bare in _MODULES
    known = _arguments(bare)
    return all(closest_words(argument, known) for argument in arguments.keys() - known)


def _arguments(name: str) -> set[str]:
    if name in GAMES:
        return set(GAME_ARGUMENTS)
    return {"velocities"} if name == "CartPole-v1" else set()


def _equivalent(name: str) -> Equivalent | None:
    return Equivalent(f"jax:{name}") if name in CLASSICS else None


def _make_probe(name: str) -> Env:
    bare, arguments = split(name)
    refuse_unknown(f"probe:{bare}", arguments, ())
    env: Env = getattr(import_module("rondel.envs.jax.probes"), bare)()
    return env


JAX = World(
    "jax",
    "Rondel's own, in JAX",
    lambda: list(_MODULES),
    _make,
    _has,
    builtin=True,
    draws=True,
    equivalent=_equivalent,
)
PROBE = World(
    "probe",
    "tiny tasks with known values, for debugging",
    lambda: PROBES,
    _make_probe,
    PROBES.__contains__,
    builtin=True,
    draws=True,
)
