"""Evolution strategies.

Salimans et al., Evolution Strategies as a Scalable Alternative to Reinforcement Learning, arXiv
1703.03864. In a round each lane acts with parameters of its own, θ + σε; the lanes of a pair, 2i
and 2i + 1, have one ε with opposite signs. The learner recomputes ε from its key, so a lane sends
only that key and its return, however large the network. n pairs are rows [n, 2, ...]; P is the
number of parameters. `ars` has other defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from rondel.algorithms.card import Card
from rondel.algorithms.ranges import check_ranges
from rondel.algorithms.wrappers import with_observation_normalisation
from rondel.errors import RondelError, one_of
from rondel.memory.newest import newest
from rondel.nets.heads import value_head
from rondel.nets.mlp import mlp
from rondel.nets.torso import choose_torso, make_torso
from rondel.ops import distributions, random
from rondel.ops.chunks import chunked_sum
from rondel.ops.distributions import Distribution
from rondel.spaces import Box, mask_of
from rondel.types import Algorithm, Array, EnvSpec, Network, Trajectory, Tree

CARD = Card(
    family="evolution",
    paper="Evolution Strategies as a Scalable Alternative to RL, arXiv 1703.03864",
    plan="actor*8 | learner",
    lanes=64,
)

_AT_ONCE = 2**20  # numbers of noise that the learner holds at a time


@dataclass(frozen=True)
class Config:
    """The algorithm's fields."""

    rollout: int = 500  # steps that each lane takes in a round; longer episodes are cut there
    sigma: float = 0.02  # deviation of the noise on parameters
    learning_rate: float = 0.01  # step size
    optimiser: str = "adam"  # adam or sgd
    weight_decay: float = 0.005  # pull of parameters towards 0, a part of σ times the gradient
    shaping: str = "ranks"  # weights of pairs: by ranks, or by returns over their deviation
    top: int | None = None  # number of pairs that count, those with the best returns; None: all
    standardise: bool = False  # standardise observations by running statistics
    hidden: tuple[int, ...] = (64, 64)  # widths of the hidden layers
    network: str = "auto"  # auto, mlp, nature, impala, minatar, board, or your own module:function

    def __post_init__(self) -> None:
        check_ranges(self)
        one_of(("ranks", "returns"), shaping=self.shaping)
        one_of(("adam", "sgd"), optimiser=self.optimiser)


class State(NamedTuple):
    params: Tree
    opt_state: Tree


class Own(NamedTuple):
    """A lane's own parameters for a round [b, ...]."""

    params: Tree  # θ + σε
    key: Array  # [b, 2] uint32: of ε, one for both lanes of a pair


class Items(NamedTuple):
    """What a lane sends [b, ...]; both lanes of a pair are a row of the batch [n, 2, ...]."""

    key: Array  # [b, 2] uint32
    episode_return: Array  # [b]


def noise(key: Array, size: int) -> Array:
    """ε [b, P] from the words of keys [b, 2]."""
    keys = jax.random.wrap_key_data(key, impl=random.IMPLEMENTATION)
    return random.normal(keys, size)


def start(config: Config, params: Tree, key: Array, lane: Array) -> Own:
    """Parameters for each lane; those of a pair lie on opposite sides of θ."""
    pair = jax.random.key_data(random.fold(key[None], lane // 2))
    side = jnp.where(lane % 2 == 0, config.sigma, -config.sigma)
    theta, unravel = ravel_pytree(params)
    return Own(jax.vmap(unravel)(theta[None] + side[:, None] * noise(pair, theta.size)), pair)


def act(
    network: Network,
    dist: Distribution,
    params: Tree,
    carry: Tree,
    obs: Tree,
    keys: Array,
    explore: bool,
    own: Own | None = None,
) -> Tree:
    """The best action, by a lane's own parameters in a round and by θ outside of rounds."""
    del keys, explore

    def alone(params: Tree, obs: Tree) -> Array:
        return network.apply(params, jax.tree.map(lambda x: x[None], obs))[0]

    out = network.apply(params, obs) if own is None else jax.vmap(alone)(own.params, obs)
    action = dist.mode(distributions.masked(out, mask_of(obs)))
    return action, carry, () if own is None else own.key


def episode_return(tr: Trajectory) -> Array:
    """The mean return of the episodes that ended [b]; where none did, of the first one so far."""
    reward = jnp.where(tr.valid, tr.reward, 0.0)
    done = (tr.terminated | tr.truncated) & tr.valid
    ended = done.sum(0)
    in_one_that_ends = jnp.cumsum(done[::-1], 0)[::-1] > 0
    whole = jnp.where(in_one_that_ends, reward, 0.0).sum(0) / jnp.maximum(ended, 1)
    return jnp.where(ended > 0, whole, reward.sum(0))


def prepare(params: Tree, tr: Trajectory) -> tuple[Items, Tree]:
    del params
    return Items(tr.extras[0], episode_return(tr)), ()


def centred_ranks(x: Array) -> Array:
    """Ranks from -1/2 (lowest) to 1/2 (highest) [m]; equal values share the mean of theirs."""
    ordered = jnp.sort(x)
    below, upto = (jnp.searchsorted(ordered, x, side=side) for side in ("left", "right"))
    return (below + upto - 1) / (2.0 * max(x.size - 1, 1)) - 0.5


def by_ranks(returns: Array, chosen: Array, sigma: float) -> Array:
    """The weight of each pair's ε [n]: (u₊ - u₋) / (2nσ), with u the ranks of all returns."""
    ranks = centred_ranks(returns.reshape(-1)).reshape(returns.shape)
    difference = jnp.where(chosen, ranks[:, 0] - ranks[:, 1], 0.0)
    return difference / (2.0 * chosen.sum() * sigma)


def by_returns(returns: Array, chosen: Array) -> Array:
    """ARS's weights of pairs [n]: (r₊ - r₋) / (b σ_R), with σ_R the deviation of the 2b chosen."""
    weight = jnp.broadcast_to(chosen[:, None], returns.shape).astype(jnp.float32)
    weight = weight / weight.sum()
    deviation = jnp.sqrt(jnp.sum(weight * (returns - jnp.sum(weight * returns)) ** 2))
    difference = jnp.where(chosen, returns[:, 0] - returns[:, 1], 0.0)
    return difference / (chosen.sum() * jnp.maximum(deviation, 1e-8))


def best_pairs(returns: Array, top: int) -> Array:
    """Which `top` pairs have the highest of max(r₊, r₋): [n] bool."""
    _, best = jax.lax.top_k(returns.max(1), top)
    return jnp.zeros(len(returns), bool).at[best].set(True)


def gradient(config: Config, share: float, params: Tree, batch: Items, key: Array) -> Tree:
    """The weighted sum of all noise, recomputed a few pairs at a time; a `share` of them counts."""
    del key
    returns, (theta, unravel) = batch.episode_return, ravel_pytree(params)
    pairs = returns.shape[0]
    chosen = best_pairs(returns, max(1, round(share * pairs)))
    if config.shaping == "ranks":
        weight = by_ranks(returns, chosen, config.sigma)
    else:
        weight = by_returns(returns, chosen)

    def weighted(rows: tuple[Array, Array]) -> Array:
        weight, key = rows
        return weight @ noise(key, theta.size)

    at_once = max(1, _AT_ONCE // theta.size)
    ascent = chunked_sum(weighted, at_once)((weight, batch.key[:, 0]))
    metrics = {
        "fitness": returns.mean(),
        "fitness/best": returns.max(),
        "fitness/deviation": returns.std(),
        "grad_norm": jnp.linalg.norm(ascent),
    }
    return unravel(-ascent), jnp.float32(pairs), (), metrics


def update(optimiser: optax.GradientTransformation, state: State, grads: Tree) -> State:
    changes, opt_state = optimiser.update(grads, state.opt_state, state.params)
    return State(optax.apply_updates(state.params, changes), opt_state)


def optimiser_for(config: Config) -> optax.GradientTransformation:
    """As in the authors' code, whose gradient is σ times ours where returns are ranked."""
    scale = config.sigma if config.shaping == "ranks" else 1.0
    decay = optax.add_decayed_weights(config.weight_decay / scale)
    adam = [optax.scale_by_adam()] if config.optimiser == "adam" else []
    return optax.chain(decay, *adam, optax.scale(-config.learning_rate))


def network_for(config: Config, spec: EnvSpec, outputs: int, own: Network | None = None) -> Network:
    """A perceptron whose last layer begins at 0; for images or an `own` network a torso."""
    kind = choose_torso(config.network, spec.observation)
    if own is None and kind == "mlp":
        return mlp(spec.observation, config.hidden, outputs, last_scale=0.0)
    return value_head(*make_torso(kind, spec.observation, config.hidden, own=own), outputs)


def make(config: Config, spec: EnvSpec, network: Network | None = None) -> Algorithm:
    """ES for discrete or continuous actions; `network` is the user's own torso, if any."""
    if spec.lanes % 2:
        raise RondelError(
            f"lanes must be even, as they act in pairs, got {spec.lanes}. Use {spec.lanes + 1}."
        )
    dist = distributions.for_space(spec.action)
    outputs = dist.size // 2 if isinstance(spec.action, Box) else dist.size
    model = network_for(config, spec, outputs, network)
    optimiser = optimiser_for(config)

    def init(key: Array) -> State:
        params = model.init(key)
        return State(params, optimiser.init(params))

    algorithm = Algorithm(
        init=init,
        acting=lambda state: state.params,
        learning=lambda state: state.params,
        gradient=partial(gradient, config, _share_of(config.top, spec.lanes // 2)),
        update=partial(update, optimiser),
        act=partial(act, model, dist),
        prepare=prepare,
        start=partial(start, config),
        memory=newest(group=2),
        rollout=config.rollout,
        fresh=True,
        max_lag=CARD.max_lag,
    )
    return with_observation_normalisation(algorithm, spec) if config.standardise else algorithm


def _share_of(top: int | None, pairs: int) -> float:
    if top is not None and top > pairs:
        raise RondelError(
            f"top must be at most {pairs}, the pairs of {2 * pairs} lanes, got {top}. "
            f"Use fewer, or --lanes {2 * top}."
        )
    return 1.0 if top is None else top / pairs
