"""AlphaZero: a network that learns from its own search, which it makes better.

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

from rondel.algorithms import actor_critic
from rondel.algorithms.actor_critic import State, turned
from rondel.algorithms.card import Card
from rondel.errors import RondelError, at_least, from_zero_to_one
from rondel.memory.sequences import SequenceBatch, Stretch, sequences
from rondel.nets.actor_critic import ActorCritic, Judged, shared_torso
from rondel.nets.encode import mask_of, without_state
from rondel.nets.torso import make_torso
from rondel.ops import distributions, random
from rondel.ops.chunks import in_chunks
from rondel.ops.masks import masked_mean
from rondel.ops.returns import gae
from rondel.spaces import Discrete
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
    """What can be set."""

    rollout: int = 32  # moves of each lane in a round
    simulations: int = 32  # positions that are looked at before each move
    considered: int = 16  # moves that a search begins with, at most
    stray: float = 0.0  # share of moves in training that are not the search's, but any legal one
    updates: int = 32  # gradient steps of a round
    batch: int = 256  # positions of a gradient step
    capacity: int = 100_000  # positions that memory holds
    warmup: int = 4_000  # moves before the first gradient step
    value_lambda: float = 1.0  # 1: learn from results, 0: from what the search says one move later
    learning_rate: float = 1e-3  # Adam's step size
    anneal_steps: int | None = None  # moves over which the step size falls to 0
    value_cost: float = 1.0  # weight of the value loss
    weight_cost: float = 1e-5  # weight of the sum of all squared parameters
    max_grad_norm: float = 1.0  # gradients beyond this norm are scaled down to it
    hidden: tuple[int, ...] = (128, 128)  # widths of the hidden layers
    network: str = "mlp"  # auto, mlp, nature, impala, minatar, board, or your own module:function

    def __post_init__(self) -> None:
        at_least(1, rollout=self.rollout, simulations=self.simulations)
        at_least(1, updates=self.updates, batch=self.batch, capacity=self.capacity)
        at_least(1, hidden=min(self.hidden, default=1), anneal_steps=self.anneal_steps)
        at_least(2, considered=self.considered)
        at_least(0, warmup=self.warmup, learning_rate=self.learning_rate)
        at_least(0, value_cost=self.value_cost, weight_cost=self.weight_cost)
        at_least(0, max_grad_norm=self.max_grad_norm)
        from_zero_to_one(value_lambda=self.value_lambda, stray=self.stray)


class Found(NamedTuple):
    """What a search says of a position."""

    policy: Array  # [..., actions]: how likely each move ought to be
    value: Array  # [...]: of playing so
    strayed: Array  # [...]: was another move made, any legal one?


class Rows(NamedTuple):
    """Items [b, T, ...] on their way to memory, batches [n, 1, ...] from there."""

    obs: Tree
    policy: Array  # what the search found
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
    """One lane's move, and what was found; without `explore` nothing is left to chance."""
    mctx = _mctx()
    obs = jax.tree.map(lambda x: x[None], obs)
    look = in_chunks(partial(judge, model))

    def onwards(params: Tree, key: Array, action: Array, state: Tree) -> tuple[Any, Tree]:
        del key
        state, reward, ended = game.step(state, action)
        logits, value = look(params, game.observe(state))
        discount = jnp.where(ended, 0.0, -1.0)  # what is good for the other is bad
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
    # what the policy that was found is worth; a mean of all visits counts bad moves that were tried
    share = jnp.where(seen.visit_counts > 0, policy, 0.0)
    value = jnp.sum(share * seen.qvalues, -1) / jnp.maximum(jnp.sum(share, -1), 1e-8)
    said = Found(policy[0], value[0], strayed=jnp.zeros((), bool))
    return found.action[0].astype(jnp.int32), said


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
    # lane by lane: with one key for all, a move would depend on the lanes beside it
    one = partial(search, config, model, game, params, explore=explore)
    action, found = jax.vmap(one)(obs, random.fold(keys, 0))
    if explore and config.stray > 0.0:
        other, strayed = stray(config, mask_of(obs), found.policy.shape, random.fold(keys, 1))
        action, found = jnp.where(strayed, other, action), found._replace(strayed=strayed)
    return action, carry, found


def stray(
    config: Config, mask: Array | None, shape: tuple[int, ...], keys: Array
) -> tuple[Array, Array]:
    """Any legal move [b], and whether it is to be made.

    Without it games become alike: of positions that neither player would let happen, but others
    do, there are ever fewer to learn from.
    """
    drawn = random.uniform(keys, 1 + shape[-1])
    legal = jnp.ones(shape) if mask is None else mask
    other = jnp.argmax(legal * (1.0 + drawn[:, 1:]), -1)
    return other.astype(jnp.int32), drawn[:, 0] < config.stray


def targets(tr: Trajectory, found: Found, last: Array, turn: float, value_lambda: float) -> Array:
    """What each position [T, b] turned out to be worth to the player whose turn it was.

        target[t] = reward[t] + turn * (1 - done[t]) *
                    ((1 - value_lambda) * value[t + 1] + value_lambda * target[t + 1])

    `turn` is -1 where the next position is the other player's, 1 where it is one's own. A game that
    goes on beyond the rows counts as the `last` value [b] says. What follows a move that strayed
    says nothing of the positions before: there the game counts as the search valued it.
    """
    values = jnp.concatenate([found.value, last[None]])
    reward = jnp.where(found.strayed, found.value, tr.reward)
    ends = tr.terminated | found.strayed, tr.truncated, tr.valid
    return found.value + gae(reward, values, *ends, turn, value_lambda)


def prepare(
    config: Config, model: ActorCritic, game: Game, params: Tree, tr: Trajectory
) -> tuple[Stretch, Array]:
    """Positions with what search and game said of them, and how many moves there were."""
    _, last = judge(model, params, jax.tree.map(lambda x: x[-1], tr.obs))
    turn = -1.0 if game.self_play else 1.0
    target = targets(tr, tr.extras, last, turn, config.value_lambda)
    obs = jax.tree.map(lambda x: x[:-1], without_state(tr.obs))
    rows = Rows(obs, tr.extras.policy, target, tr.first[:-1], tr.valid)
    return Stretch(turned(rows), ()), tr.valid.sum(0)


def loss(
    config: Config, model: ActorCritic, params: Tree, rows: Rows
) -> tuple[Array, dict[str, Array]]:
    """(z - v)² - π log p + c |θ|², equation 1; means over valid rows."""
    logits, value = judge(model, params, rows.obs)

    def mean(x: Array) -> Array:
        return masked_mean(x, rows.valid)

    policy_loss = -mean(jnp.sum(rows.policy * jax.nn.log_softmax(logits), -1))
    value_loss = mean((rows.target - value) ** 2)
    weights = sum(jnp.sum(x**2) for x in jax.tree.leaves(params))
    total = policy_loss + config.value_cost * value_loss + config.weight_cost * weights
    wanted = -mean(jnp.sum(jax.scipy.special.xlogy(rows.policy, rows.policy), -1))
    return total, {
        "loss/policy": policy_loss - wanted,  # how far the network is from the search
        "loss/value": value_loss,
        "entropy": wanted,  # of what the search says
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
    """AlphaZero for a game of two, whose rules the environment offers.

    `network` is one of the user's own, from observations to features.
    """
    _mctx()
    game = _game(spec, model)
    torso, width = make_torso(config.network, spec.observation, config.hidden, jax.nn.relu, network)
    judges = shared_torso(torso, width, spec.action.n)
    optimiser = actor_critic.adam(config.max_grad_norm)
    warmup = math.ceil(config.warmup / (spec.lanes * config.rollout))

    def init(key: Array) -> State:
        params = judges.init(key)
        return State(params, optimiser.init(params), jnp.int32(0))

    return Algorithm(
        init=init,
        acting=lambda state: state.params,
        learning=lambda state: state.params,
        absorb=partial(actor_critic.count_steps, config),
        gradient=partial(gradient, config, judges),
        update=partial(actor_critic.descend, config, optimiser),
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
            f"alphazero looks ahead by a game's rules, and {spec.id} has none to offer: "
            "TicTacToe-v0, ConnectFour-v0 and pgx's games for two (pgx:othello) do, and so does an "
            "Env with a `game` of your own."
        )
    return game


def _mctx() -> Any:
    try:
        import mctx
    except ImportError as absent:
        raise RondelError(
            f'alphazero searches with mctx ({absent}): pip install "rondel[search]"'
        ) from absent
    return mctx
