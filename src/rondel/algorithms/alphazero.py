"""AlphaZero: a network that learns from a search that uses it.

Silver et al., Mastering Chess and Shogi by Self-Play with a General Reinforcement Learning
Algorithm, arXiv 1712.01815; the search is that of Danihelka et al., Policy improvement by planning
with Gumbel, ICLR 2022, as mctx has it. Values are from the view of the player whose turn it is, so
those of neighbouring positions have opposite signs. Rows of a batch are [n, ...].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rondel.algorithms import descent
from rondel.algorithms.card import Card
from rondel.algorithms.ranges import check_ranges
from rondel.errors import RondelError, at_least
from rondel.memory.sequences import SequenceBatch, Stretch, sequences
from rondel.nets.actor_critic import ActorCritic, Judged, shared_torso
from rondel.nets.torso import make_torso
from rondel.ops import distributions, random
from rondel.ops.chunks import in_chunks
from rondel.ops.optimisers import adam
from rondel.ops.returns import gae, swap_time
from rondel.ops.statistics import masked_mean
from rondel.spaces import Discrete, mask_of, without_state
from rondel.types import Algorithm, Array, Env, EnvSpec, Game, Network, Trajectory, Tree

CARD = Card(
    family="search",
    actions="discrete",
    paper="Mastering Chess and Shogi by Self-Play with a General Reinforcement Learning Algorithm, "
    "arXiv 1712.01815",
    plan="actor*4 | learner",
    max_lag=None,
    lanes=64,
)


@dataclass(frozen=True)
class Config:
    """The algorithm's fields."""

    rollout: int = 32  # moves of each lane per round
    simulations: int = 32  # positions that the search visits before each move
    considered: int = 16  # most moves that a search begins with
    stray: float = 0.0  # share of training moves that are random legal ones instead of the search's
    updates: int = 32  # gradient steps per round
    batch: int = 256  # positions per gradient step
    capacity: int = 100_000  # positions kept in memory
    warmup: int = 4_000  # moves before the first gradient step
    value_lambda: float = 1.0  # 1: learn from results, 0: from the search's value one move later
    learning_rate: float = 1e-3  # Adam's step size
    anneal_steps: int | None = None  # moves over which the step size falls to 0
    value_cost: float = 1.0  # weight of the value loss
    weight_cost: float = 1e-5  # weight of the L2 penalty on parameters
    max_grad_norm: float = 1.0  # gradients are clipped to this norm
    hidden: tuple[int, ...] = (128, 128)  # widths of the hidden layers
    network: str = "mlp"  # auto, mlp, nature, impala, minatar, board, or your own module:function

    def __post_init__(self) -> None:
        check_ranges(self)
        at_least(0, value_cost=self.value_cost, weight_cost=self.weight_cost)


class Found(NamedTuple):
    """The result of a search at a position."""

    policy: Array  # [..., actions]: improved probabilities of moves
    value: Array  # [...]: of that policy
    strayed: Array  # [...]: was a random legal move made instead?


class Rows(NamedTuple):
    """Items [b, T, ...] for memory, batches [n, 1, ...] from it."""

    obs: Tree
    policy: Array  # of the search
    target: Array  # for the value: the game's result
    first: Array
    valid: Array


def judge(model: ActorCritic, params: Tree, obs: Tree) -> Judged:
    """Logits of legal moves, and a value from -1 to 1."""
    _, (logits, value) = model.step(params, (), obs)
    return Judged(distributions.masked(logits, mask_of(obs)), jnp.tanh(value))


def search(
    config: Config,
    model: ActorCritic,
    game: Game,
    params: Tree,
    obs: Tree,
    key: Array,
    explore: bool,
) -> tuple[Array, Found]:
    """One lane's move and the result of its search; deterministic without `explore`."""
    mctx = _mctx()
    obs = jax.tree.map(lambda x: x[None], obs)
    look = in_chunks(partial(judge, model))

    def onwards(params: Tree, key: Array, action: Array, state: Tree) -> tuple[Any, Tree]:
        del key
        state, reward, ended = game.step(state, action)
        logits, value = look(params, game.observe(state))
        discount = jnp.where(ended, 0.0, -1.0)  # the other player's gain is a loss
        output = mctx.RecurrentFnOutput(
            reward=reward, discount=discount, prior_logits=logits, value=value
        )
        return output, state

    logits, value = look(params, obs)
    mask = mask_of(obs)
    found = mctx.gumbel_muzero_policy(
        params,
        key,
        mctx.RootFnOutput(prior_logits=logits, value=value, embedding=game.state(obs)),
        onwards,
        config.simulations,
        invalid_actions=None if mask is None else 1 - mask,
        max_num_considered_actions=config.considered,
        gumbel_scale=1.0 if explore else 0.0,
    )
    seen, policy = found.search_tree.summary(), found.action_weights
    # the value of the improved policy; a mean over all visits would count bad moves that were tried
    share = jnp.where(seen.visit_counts > 0, policy, 0.0)
    value = jnp.sum(share * seen.qvalues, -1) / jnp.maximum(jnp.sum(share, -1), 1e-8)
    result = Found(policy[0], value[0], strayed=jnp.zeros((), bool))
    return found.action[0].astype(jnp.int32), result


def act(
    config: Config,
    model: ActorCritic,
    game: Game,
    params: Tree,
    carry: Tree,
    obs: Tree,
    keys: Array,
    explore: bool,
) -> tuple[Array, Tree, Found]:
    """The search's move, or now and then a random legal one."""
    # lane by lane: with one key for all, a move would depend on other lanes
    one = partial(search, config, model, game, params, explore=explore)
    action, found = jax.vmap(one)(obs, random.fold(keys, 0))
    if explore and config.stray > 0.0:
        other, strayed = stray(config, mask_of(obs), found.policy.shape, random.fold(keys, 1))
        action, found = jnp.where(strayed, other, action), found._replace(strayed=strayed)
    return action, carry, found


def stray(
    config: Config, mask: Array | None, shape: tuple[int, ...], keys: Array
) -> tuple[Array, Array]:
    """A random legal move [b], and whether to make it.

    Without such moves games become alike: memory lacks positions that both players avoid, but that
    other opponents reach.
    """
    drawn = random.uniform(keys, 1 + shape[-1])
    legal = jnp.ones(shape) if mask is None else mask
    other = jnp.argmax(legal * (1.0 + drawn[:, 1:]), -1)
    return other.astype(jnp.int32), drawn[:, 0] < config.stray


def targets(tr: Trajectory, found: Found, last: Array, turn: float, value_lambda: float) -> Array:
    """The outcome of each position [T, b] for the player whose turn it was.

        target[t] = reward[t] + turn * (1 - done[t]) *
                    ((1 - value_lambda) * value[t + 1] + value_lambda * target[t + 1])

    `turn` is -1 where the next position is the other player's, 1 where it is one's own. A game that
    goes on beyond the rows counts as the `last` value [b]. What follows a random move says nothing
    of the positions before it: there the search's value counts.
    """
    values = jnp.concatenate([found.value, last[None]])
    reward = jnp.where(found.strayed, found.value, tr.reward)
    ends = tr.terminated | found.strayed, tr.truncated, tr.valid
    return found.value + gae(reward, values, *ends, turn, value_lambda)


def prepare(
    config: Config, model: ActorCritic, game: Game, params: Tree, tr: Trajectory
) -> tuple[Stretch, Array]:
    """Positions with the results of search and game, and the number of moves."""
    _, last = judge(model, params, jax.tree.map(lambda x: x[-1], tr.obs))
    turn = -1.0 if game.self_play else 1.0
    target = targets(tr, tr.extras, last, turn, config.value_lambda)
    obs = jax.tree.map(lambda x: x[:-1], without_state(tr.obs))
    rows = Rows(obs, tr.extras.policy, target, tr.first[:-1], tr.valid)
    return Stretch(swap_time(rows), ()), tr.valid.sum(0)


def loss(
    config: Config, model: ActorCritic, params: Tree, rows: Rows
) -> tuple[Array, dict[str, Array]]:
    """(z - v)² - π log p + c |θ|², equation 1; means over valid rows."""
    logits, value = judge(model, params, rows.obs)
    mean = partial(masked_mean, valid=rows.valid)
    policy_loss = -mean(jnp.sum(rows.policy * jax.nn.log_softmax(logits), -1))
    value_loss = mean((rows.target - value) ** 2)
    weights = sum(jnp.sum(x**2) for x in jax.tree.leaves(params))
    total = policy_loss + config.value_cost * value_loss + config.weight_cost * weights
    search_entropy = -mean(jnp.sum(jax.scipy.special.xlogy(rows.policy, rows.policy), -1))
    return total, {
        "loss/policy": policy_loss - search_entropy,  # divergence of the network from the search
        "loss/value": value_loss,
        "entropy": search_entropy,
    }


def gradient(
    config: Config, model: ActorCritic, params: Tree, batch: SequenceBatch, key: Array
) -> Tree:
    del key
    rows = jax.tree.map(lambda x: x[:, 0], batch.rows)  # sequences of one row
    grads, metrics = jax.grad(partial(loss, config, model), has_aux=True)(params, rows)
    metrics = metrics | {"grad_norm": optax.tree.norm(grads)}
    feedback = jnp.zeros(rows.valid.shape)
    return grads, rows.valid.sum().astype(jnp.float32), feedback, metrics


def make(
    config: Config, spec: EnvSpec, network: Network | None = None, model: Env | None = None
) -> Algorithm:
    """AlphaZero by the rules of the game `model`; `network` is the user's own torso, if any."""
    _mctx()
    game = _game(spec, model)
    torso, width = make_torso(config.network, spec.observation, config.hidden, jax.nn.relu, network)
    judges = shared_torso(torso, width, spec.action.n)
    optimiser = adam(config.max_grad_norm, epsilon=1e-5)
    warmup = math.ceil(config.warmup / (spec.lanes * config.rollout))
    return Algorithm(
        init=partial(descent.init, judges, optimiser),
        acting=lambda state: state.params,
        learning=lambda state: state.params,
        absorb=partial(descent.count_steps, config.anneal_steps),
        gradient=partial(gradient, config, judges),
        update=partial(descent.descend, config, optimiser),
        act=partial(act, config, judges, game),
        prepare=partial(prepare, config, judges, game),
        memory=sequences(config.capacity, config.batch, config.updates, 1, 1, warmup_rounds=warmup),
        rollout=config.rollout,
        max_lag=CARD.max_lag,
    )


def _game(spec: EnvSpec, model: Env | None) -> Game:
    game = None if model is None else model.game
    if game is None or not isinstance(spec.action, Discrete):
        raise RondelError(
            f"alphazero needs the rules of a game, and {spec.id} offers none. Use TicTacToe-v0, "
            "ConnectFour-v0, a two-player game of pgx (pgx:othello), or your own Env with a `game`."
        )
    return game


def _mctx() -> Any:
    try:
        import mctx
    except ImportError as absent:
        raise RondelError(
            f'alphazero needs mctx ({absent}). Run: pip install "rondel[search]"'
        ) from absent
    return mctx
