"""Environments: our own in JAX, and adapters for the worlds of others.

Importing this imports neither jax nor gymnasium.
"""

from rondel.envs.check import check
from rondel.envs.errors import EnvError
from rondel.envs.registry import WORLDS, bare_id, is_ours, make, names

__all__ = ["WORLDS", "EnvError", "bare_id", "check", "is_ours", "make", "names"]
