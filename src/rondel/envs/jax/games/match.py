"""Environments from the rules of a two-player game: self-play, or against an opponent.

Observations are dicts: `board` from the view of the player to move, and a mask of legal moves. An
illegal move loses. In self-play a step is one move, with the reward of the player who moved, and an
episode's return is the first player's result. Against an opponent, its reply is part of the step,
rewards are ours, and a coin decides who begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from rondel.envs.jax.episodic import Episode, episodic
from rondel.envs.jax.games import opponents
from rondel.envs.jax.games.opponents import Opponent
from rondel.errors import RondelError
from rondel.formatting import join_words
from rondel.ops import random
from rondel.ops.select import select
from rondel.types import Array, Env, EnvSpec, Game, Step, Tree

# (stones [rows, columns, 2] of one lane) -> picture: the first player's, or ours, come first
Draw: TypeAlias = Callable[[np.ndarray], Any]


class Match(NamedTuple):
    """The state of games against an opponent in b lanes."""

    board: Tree  # [b, ...]
    key: Array  # [b]: the opponent's randomness
    moves: Array  # [b] uint32: our moves so far; each folds its key
    ours: Array  # [b] bool: it is our turn, except after a move of ours that ended the game


def environment(
    spec: EnvSpec,
    game: Game,
    opponent: str | None,
    simulations: int | None,
    own: Mapping[str, Callable[[], Opponent]] | None = None,
    draw: Draw | None = None,
) -> Env:
    """The environment for self-play, or against the opponent of that name.

    All games have the opponents `random` and `mcts`; some have their `own`.
    """
    if simulations is not None and opponent != "mcts":
        wanted = f"{spec.id}?opponent=mcts&simulations={simulations}"
        raise RondelError(
            f"simulations={simulations} needs opponent=mcts, got {opponent!r}. Use {wanted}."
        )
    if opponent is None:
        return self_play(spec, game, draw)
    count = opponents.SIMULATIONS if simulations is None else simulations
    known: dict[str, Callable[[], Opponent]] = {"random": lambda: opponents.at_random(game)}
    known |= {**(own or {}), "mcts": lambda: opponents.mcts(game, count)}
    if opponent not in known:
        names = join_words(known, "or")
        raise RondelError(f"opponent must be {names} in {spec.id}, got {opponent!r}.")
    chosen = f"mcts&simulations={count}" if opponent == "mcts" else opponent
    spec = spec._replace(id=f"{spec.id}?opponent={chosen}")
    return against(spec, game, known[opponent](), draw)


def self_play(spec: EnvSpec, game: Game, draw: Draw | None = None) -> Env:
    """The environment in which one policy moves for both players."""
    env = episodic(spec, lambda keys: game.start(keys.shape[0]), game.step, game.observe)

    def step(state: Tree, action: Array) -> tuple[Tree, Step]:
        state, after = env.step(state, action)
        first_moved = after.episode_length % 2 == 1
        # 0 - reward, since -reward could be -0
        result = jnp.where(first_moved, after.reward, 0.0 - after.reward)
        return state, after._replace(episode_return=result)

    def turn(state: Episode) -> tuple[Tree, Any]:
        return state.physics, state.length % 2 == 0

    return env._replace(step=step, game=game, draw=_drawing(game, draw, turn))


def against(spec: EnvSpec, game: Game, reply: Opponent, draw: Draw | None = None) -> Env:
    """The environment in which `reply` moves for the other player."""

    def start(keys: Array) -> Match:
        board = game.start(keys.shape[0])
        opened, _, _ = game.step(board, reply(board, random.fold(keys, 1)))
        ours = random.uniform(random.fold(keys, 2), 1)[:, 0] < 0.5
        none = jnp.zeros(keys.shape, jnp.uint32)
        return Match(select(ours, board, opened), keys, none, jnp.ones(keys.shape, bool))

    def move(match: Match, action: Array) -> tuple[Match, Array, Array]:
        board, won, over = game.step(match.board, action)
        answer = reply(board, random.fold(match.key, 3, match.moves))
        replied, lost, ended = game.step(board, answer)
        after = Match(select(over, board, replied), match.key, match.moves + 1, ~over)
        return after, jnp.where(over, won, -lost), over | ended

    def observe(match: Match) -> Tree:
        return game.observe(match.board)

    drawn = _drawing(game, draw, lambda match: (match.board, match.ours))
    env = episodic(spec, start, move, observe, draw=drawn)
    return env._replace(game=game._replace(self_play=False))


def _drawing(
    game: Game, draw: Draw | None, turn: Callable[[Tree], tuple[Tree, Any]]
) -> Callable[[Tree], Any] | None:
    """A drawing function of a state; `turn` returns its board, and whether the first player moves.

    An observation has the mover's stones first, so without `turn` colours would swap at each move.
    """
    if draw is None:
        return None

    def drawn(state: Tree) -> Any:
        board, first = turn(state)
        seen = game.observe(jax.tree.map(lambda x: x[None], board))
        stones = np.asarray(seen["board"][0])
        return draw(stones if first else stones[..., ::-1])

    return drawn
