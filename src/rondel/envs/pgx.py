"""The world `pgx`: its two-player games without chance or hidden cards, and 2048, in JAX.

A position may be more than its board (repetitions in chess, ko in go), and a search starts from
positions. So observations also hold the whole position in bytes, which no network sees. Games with
dice, hidden cards or more players are left out. Importing this imports neither jax nor pgx.

Shapes: pgx's functions are for one lane; they are mapped over b.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rondel.envs.errors import EnvError
from rondel.envs.jax.world import GAME_ARGUMENTS
from rondel.envs.world import World, is_installed, refuse_unknown, split
from rondel.spaces import MASK, STATE, Box, Discrete, MultiBinary, Space
from rondel.types import Array, Env, EnvSpec, Game, Tree

FOR_TWO = (
    "animal_shogi chess connect_four gardner_chess go_9x9 go_19x19 hex othello shogi tic_tac_toe"
).split()
"""Two-player games without chance or hidden information."""

ALONE = ("2048",)


class Play(NamedTuple):
    """The state of a one-player game in b lanes."""

    state: Tree  # [b, ...]: pgx's own
    key: Array  # [b, 2] uint32: the episode's randomness
    moves: Array  # [b] uint32: steps of the episode; each folds its key


def from_id(name: str) -> Env:
    """Make the environment `name`; two-player games take the arguments of our own.

    >>> from_id("othello?opponent=random").spec.id
    'pgx:othello?opponent=random'
    """
    bare, arguments = split(name)
    import pgx

    try:
        task = pgx.make(bare)
    except Exception as error:
        raise EnvError(f"pgx:{bare} can't be made: {type(error).__name__}: {error}") from error
    refuse_unknown(f"pgx:{bare}", arguments, GAME_ARGUMENTS if bare in FOR_TWO else ())
    return _for_two(task, arguments) if bare in FOR_TWO else _alone(task)


def registered() -> list[str]:
    """All ids of this world; none if pgx is not installed."""
    return [*FOR_TWO, *ALONE] if is_installed("pgx") else []


def _for_two(task: Any, arguments: dict[str, Any]) -> Env:
    from rondel.envs.jax.games.match import environment

    game = rules(task)
    seen, actions = _seen(task)
    spec = EnvSpec(f"pgx:{task.id}", seen | {STATE: _bytes(game)}, actions)
    return environment(spec, game, arguments.get("opponent"), arguments.get("simulations"))


def rules(task: Any) -> Game:
    """The rules of a two-player game; its state is pgx's, without the observation."""
    import jax
    import jax.numpy as jnp

    from rondel.envs.jax.episodic import in_types_of

    def first() -> Any:
        """The first position; the key would only name the player who begins."""
        with jax.numpy_rank_promotion("allow"):  # pgx's code, not the user's
            state = task.init(jax.random.key(0)).replace(observation=jnp.zeros(0))
        return jax.tree.map(jnp.asarray, state)

    like = jax.eval_shape(first)

    def start(lanes: int) -> Tree:
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (lanes, *x.shape)), first())

    def one_step(state: Any, action: Array) -> tuple[Tree, Array, Array]:
        with jax.numpy_rank_promotion("allow"):
            after = task.step(state, action)
        ended = after.terminated | after.truncated
        reward = after.rewards[state.current_player].astype(jnp.float32)
        return in_types_of(like, after.replace(observation=state.observation)), reward, ended

    def one_look(state: Any) -> Tree:
        with jax.numpy_rank_promotion("allow"):
            board = task.observe(state)
        return _look(board, state) | {STATE: _packed(state)}

    return Game(
        start,
        jax.vmap(one_step),
        jax.vmap(one_look),
        state=lambda obs: jax.vmap(lambda data: _unpacked(like, data))(obs[STATE]),
    )


def _alone(task: Any) -> Env:
    import jax
    import jax.numpy as jnp

    from rondel.envs.jax.episodic import episodic
    from rondel.ops.random import IMPLEMENTATION, fold

    def start(keys: Array) -> Play:
        moves = jnp.zeros(keys.shape, jnp.uint32)
        with jax.numpy_rank_promotion("allow"):
            state = jax.vmap(task.init)(fold(keys, moves))
        return Play(state, jax.random.key_data(keys), moves)

    def move(play: Play, action: Array) -> tuple[Play, Array, Array]:
        moves = play.moves + 1
        keys = fold(jax.random.wrap_key_data(play.key, impl=IMPLEMENTATION), moves)
        with jax.numpy_rank_promotion("allow"):
            state = jax.vmap(task.step)(play.state, action, keys)
        return Play(state, play.key, moves), state.rewards[:, 0], state.terminated

    def observe(play: Play) -> Tree:
        return jax.vmap(lambda state: _look(state.observation, state))(play.state)

    spec = EnvSpec(f"pgx:{task.id}", *_seen(task))
    return episodic(spec, start, move, observe, cut_off=lambda play: play.state.truncated)


def _seen(task: Any) -> tuple[dict[str, Space], Discrete]:
    """The spaces of observations (flags as int8, numbers without bounds) and moves."""
    import jax

    with jax.numpy_rank_promotion("allow"):
        state = jax.eval_shape(lambda: task.init(jax.random.key(0)))
    shown, (moves,) = state.observation, state.legal_action_mask.shape
    if shown.dtype == bool:
        board = Box(np.zeros(shown.shape, np.int8), np.ones(shown.shape, np.int8), "int8")
    else:
        endless = np.full(shown.shape, np.inf, np.float32)
        board = Box(-endless, endless)
    return {"board": board, MASK: MultiBinary((moves,))}, Discrete(moves)


def _look(board: Array, state: Any) -> dict[str, Array]:
    import jax.numpy as jnp

    seen = board.astype(jnp.int8 if board.dtype == bool else jnp.float32)
    return {"board": seen, MASK: state.legal_action_mask.astype(jnp.int8)}


def _bytes(game: Game) -> Box:
    import jax

    count = jax.eval_shape(lambda: game.observe(game.start(1))[STATE]).shape[1]
    return Box(np.zeros(count, np.uint8), np.full(count, 255, np.uint8), "uint8")


def _packed(state: Tree) -> Array:
    """Turn a position into bytes [n]."""
    import jax
    import jax.numpy as jnp

    def one(x: Array) -> Array:
        x = x.astype(jnp.uint8) if x.dtype == bool else x
        return jax.lax.bitcast_convert_type(x, jnp.uint8).reshape(-1)

    return jnp.concatenate([one(x) for x in jax.tree.leaves(state)])


def _unpacked(like: Tree, data: Array) -> Tree:
    """Turn bytes [n] back into a position."""
    import jax

    leaves, kind = jax.tree.flatten(like)
    made, at = [], 0
    for leaf in leaves:
        size = leaf.dtype.itemsize
        part = data[at : at + leaf.size * size]
        at += leaf.size * size
        if leaf.dtype == bool:
            made.append(part.reshape(leaf.shape) != 0)
        else:
            words = part.reshape(*leaf.shape, *([size] if size > 1 else []))
            made.append(jax.lax.bitcast_convert_type(words, leaf.dtype))
    assert at == data.shape[0]
    return jax.tree.unflatten(kind, made)


WORLD = World(
    "pgx",
    "pgx's games for two without chance or hidden cards, and 2048, in JAX",
    registered,
    from_id,
    library="pgx",
    install='pip install "rondel[pgx]"',
)
