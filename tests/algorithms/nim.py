"""A game so small that all is known: take one stone or two, and who takes the last one wins.

With a pile that three divides whoever is to move has lost against one who knows.
"""

import jax.numpy as jnp
import numpy as np

from rondel.envs.jax.games.match import self_play
from rondel.spaces import MASK, Discrete, MultiBinary
from rondel.types import EnvSpec, Game

PILE = 7
SPEC = EnvSpec("test:nim", {"pile": Discrete(PILE + 1), MASK: MultiBinary((2,))}, Discrete(2))
VALUES = np.array([-1.0 if pile % 3 == 0 else 1.0 for pile in range(1, PILE + 1)])
BEST = {pile: pile % 3 - 1 for pile in range(1, PILE + 1) if pile % 3}


def start(lanes):
    return jnp.full(lanes, PILE, jnp.int32)


def step(pile, action):
    left = pile - 1 - action
    won = jnp.where(left == 0, 1.0, jnp.where(left < 0, -1.0, 0.0))
    return jnp.maximum(left, 0), won, left <= 0


def observe(pile):
    return {"pile": pile, MASK: jnp.stack([pile >= 1, pile >= 2], -1).astype(jnp.int8)}


GAME = Game(start, step, observe, lambda obs: obs["pile"])
NIM = self_play(SPEC, GAME)


def all_piles():
    return observe(jnp.arange(1, PILE + 1, dtype=jnp.int32))
