"""Opponents for any two-player game: random moves, and Monte-Carlo tree search.

Kocsis and Szepesvári, Bandit based Monte-Carlo Planning (2006): the tree grows by one position per
simulation, which is chosen by upper confidence bounds and valued by a random game from there on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from rondel.errors import RondelError
from rondel.ops import random
from rondel.spaces import MASK
from rondel.types import Array, Game, Tree

# (state, keys [b]) -> action [b]
Opponent: TypeAlias = Callable[[Tree, Array], Array]
SIMULATIONS = 100  # per move, by default
MOST = 100_000
EXPLORATION = 2.0**0.5  # of the bounds, for results from -1 to 1


def at_random(game: Game) -> Opponent:
    """An opponent that makes any legal move."""

    def reply(state: Tree, keys: Array) -> Array:
        legal = game.observe(state)[MASK]
        return jnp.argmax(legal * (1.0 + random.uniform(keys, legal.shape[-1])), -1)

    return reply


def mcts(game: Game, simulations: int) -> Opponent:
    """An opponent that makes the move with the most visits among `simulations`."""
    if type(simulations) is not int or not 1 <= simulations <= MOST:
        raise RondelError(f"simulations must be an integer from 1 to {MOST:,}, got {simulations}.")
    mctx = _mctx()
    move_at_random = at_random(game)

    def legal_of(state: Tree) -> Array:
        return jnp.where(game.observe(state)[MASK] > 0, 0.0, -jnp.inf)

    def recurrent(_: Any, key: Array, action: Array, state: Tree) -> tuple[Any, Tree]:
        state, reward, ended = game.step(state, action)
        value = random_game(game, move_at_random, state, ended, key[None])
        output = mctx.RecurrentFnOutput(
            reward=reward,
            discount=jnp.where(ended, 0.0, -1.0),  # the next value is the other player's
            prior_logits=legal_of(state),
            value=value,
        )
        return output, state

    def one(state: Tree, key: Array) -> Array:
        state = jax.tree.map(lambda x: x[None], state)
        logits = legal_of(state)
        root = mctx.RootFnOutput(prior_logits=logits, value=jnp.zeros(1), embedding=state)
        tree = mctx.search(
            (),
            key,
            root=root,
            recurrent_fn=recurrent,
            root_action_selection_fn=partial(_upper_bound, depth=0),
            interior_action_selection_fn=_upper_bound,
            num_simulations=simulations,
        )
        visits = tree.summary().visit_counts[0]
        # among the legal ones, if the game is not over
        return jnp.argmax(visits + (logits[0] == 0.0) * 0.5)

    return jax.vmap(one)


def random_game(game: Game, move: Opponent, state: Tree, ended: Array, keys: Array) -> Array:
    """The result [b] of a random game from here, for the player to move."""

    def on(loop: Tree) -> Tree:
        state, ended, result, sign, t = loop
        state, reward, over = game.step(state, move(state, random.fold(keys, t)))
        result = jnp.where(ended, result, sign * reward)
        return state, ended | over, result, -sign, t + 1

    nothing = jnp.zeros(ended.shape)
    loop = (state, ended, nothing, jnp.float32(1.0), jnp.uint32(0))
    return lax.while_loop(lambda loop: ~loop[1].all(), on, loop)[2]


def _upper_bound(key: Array, tree: Any, node: Array, depth: Any) -> Array:
    """Choose untried moves in random order, then the greatest mean + c √(ln N / n)."""
    del depth
    visits = tree.children_visits[node]
    logits = tree.children_prior_logits[node]
    bonus = jnp.sqrt(jnp.log(jnp.maximum(visits.sum(), 1)) / jnp.maximum(visits, 1))
    first = 1e3 + random.uniform(key, visits.shape[0])
    bound = jnp.where(visits > 0, tree.qvalues(node) + EXPLORATION * bonus, first)
    return jnp.argmax(bound + logits).astype(jnp.int32)


def _mctx() -> Any:
    try:
        import mctx
    except ImportError as absent:
        raise RondelError(
            f'opponent=mcts needs mctx (pip install "rondel[search]"): {absent}.'
        ) from absent
    return mctx
