"""Deep Q-networks, with the usual improvements as fields.

Mnih et al., Playing Atari with Deep Reinforcement Learning, arXiv 1312.5602; van Hasselt et al.,
Deep Reinforcement Learning with Double Q-learning, arXiv 1509.06461; Wang et al., Dueling Network
Architectures, arXiv 1511.06581; Schaul et al., Prioritized Experience Replay, arXiv 1511.05952;
distributions of returns are in `ops.return_distributions`, noisy layers in `nets.noisy`; all of it
together is Rainbow, Hessel et al., arXiv 1710.02298; the ladder is that of Ape-X, arXiv 1803.00933.
Rows of a batch are [n, ...].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rondel.algorithms.card import Card, name_by_config
from rondel.algorithms.descent import count_steps
from rondel.algorithms.ranges import check_ranges
from rondel.errors import RondelError, one_of
from rondel.memory.replay import TransitionBatch, Transitions, prioritised, uniform
from rondel.nets.heads import dueling_head, value_head
from rondel.nets.mlp import mlp
from rondel.nets.noisy import with_noise
from rondel.nets.torso import choose_torso, make_torso
from rondel.ops import distributions, random, return_distributions
from rondel.ops.optimisers import adam
from rondel.ops.return_distributions import Misfit, ReturnModel
from rondel.ops.returns import n_step_returns, swap_time
from rondel.ops.statistics import masked_mean
from rondel.spaces import Discrete, mask_of
from rondel.types import Algorithm, Array, EnvSpec, Memory, Network, Trajectory, Tree

CARD = Card(
    family="value-based",
    actions="discrete",
    paper="Playing Atari with Deep Reinforcement Learning, arXiv 1312.5602",
    max_lag=None,
)


@dataclass(frozen=True)
class Config:
    """The algorithm's fields."""

    rollout: int = 8  # steps that each lane takes in a round
    updates: int = 32  # gradient steps per round
    batch: int = 64  # transitions per gradient step
    capacity: int = 50_000  # transitions kept in memory
    warmup: int = 1_000  # environment steps before the first gradient step
    learning_rate: float = 5e-4  # Adam's step size
    anneal_steps: int | None = None  # environment steps over which the step size falls to 0
    discount: float = 0.99  # discount of a reward per step
    n_step: int = 1  # rewards summed before bootstrapping
    double: bool = True  # the online network chooses the next action, the target network values it
    dueling: bool = False  # separate streams for state value and advantages
    prioritised: bool = False  # draw by error instead of uniformly
    priority_exponent: float = 0.6  # 0: uniform, 1: proportional to the error
    importance_start: float = 0.4  # initial exponent of the importance weights; it grows to 1
    importance_steps: int = 100_000  # environment steps over which it grows
    target_every: int = 100  # gradient steps between updates of the target network
    target_rate: float = 1.0  # share of the target replaced then; below 1: a Polyak average
    epsilon_start: float = 1.0  # initial share of random actions
    epsilon_end: float = 0.05  # final share of random actions
    epsilon_steps: int = 10_000  # environment steps from the initial to the final share
    ladder: float = 0.0  # α: lane i of N has epsilon ** (1 + α i / (N - 1)); 0: one epsilon for all
    noise: float = 0.0  # initial scale of noise in the last layers; 0: no noisy layers
    returns: str = "mean"  # model of returns: mean, categorical, quantile, rescaled (R2D2)
    atoms: int = 51  # number of values of a categorical distribution, or of quantiles
    return_min: float = -10.0  # lowest value of a categorical distribution
    return_max: float = 10.0  # highest value of a categorical distribution
    max_grad_norm: float = 10.0  # gradients are clipped to this norm
    hidden: tuple[int, ...] = (128, 128)  # widths of the hidden layers
    network: str = "auto"  # auto, mlp, nature, impala, minatar, board, or your own module:function

    def __post_init__(self) -> None:
        check_ranges(self)
        one_of(RETURNS, returns=self.returns)
        if not self.return_min < self.return_max:
            raise RondelError(
                f"return_min must be below return_max={self.return_max}, got {self.return_min}."
            )


class State(NamedTuple):
    params: Tree
    target: Tree
    opt_state: Tree
    steps: Array  # environment steps so far, no further than the schedules need
    updates: Array  # gradient steps since the target moved


class Weights(NamedTuple):
    params: Tree
    epsilon: Array


class Variables(NamedTuple):
    params: Tree
    target: Tree
    importance: Array  # exponent of the importance weights


class Model(NamedTuple):
    network: Network
    returns: ReturnModel  # the meaning of its outputs


def q_of(returns: ReturnModel, out: Array, obs: Tree) -> Array:
    """The values of actions; forbidden ones have a very low value."""
    return distributions.masked(returns.mean(out), mask_of(obs))


def importance_weights(ratio: Array, exponent: Array, valid: Array) -> Array:
    """(N P)^-β, scaled to a maximum of 1 in the batch."""
    weight = jnp.where(valid, jnp.maximum(ratio, 1e-12) ** -exponent, 0.0)
    return weight / jnp.maximum(weight.max(), 1e-12)


def linear(start: float, end: float, steps: Array, horizon: int) -> Array:
    """A linear schedule: from start to end over `horizon` steps, then end."""
    return start + (end - start) * jnp.minimum(steps / horizon, 1.0)


def network_for(config: Config, spec: EnvSpec, actions: int, own: Network | None = None) -> Network:
    """A perceptron; for images, streams, atoms or an `own` network a head behind a torso."""
    kind, atoms = choose_torso(config.network, spec.observation), returns_for(config).atoms
    if own is None and kind == "mlp" and not has_streams(config) and atoms is None:
        return mlp(spec.observation, config.hidden, actions, activation=jax.nn.relu)
    return values_behind(config, *torso_for(config, spec, own), actions)


def has_streams(config: Config) -> bool:
    """Does the last hidden layer belong to the head, one for each of its streams?"""
    return config.dueling or config.noise > 0.0


def torso_for(config: Config, spec: EnvSpec, own: Network | None) -> tuple[Network, int]:
    """The torso before the head, and its width."""
    shared = config.hidden[:-1] if has_streams(config) else config.hidden
    return make_torso(config.network, spec.observation, shared, jax.nn.relu, own)


def values_behind(config: Config, torso: Network, width: int, actions: int) -> Network:
    """The head behind a torso of that width."""
    head = dueling_head if config.dueling else value_head
    stream = config.hidden[-1:] if has_streams(config) else ()
    atoms = returns_for(config).atoms
    return head(torso, width, actions, stream, atoms=atoms, noise=config.noise)


def returns_for(config: Config) -> ReturnModel:
    return RETURNS[config.returns](config)


RETURNS: dict[str, Callable[[Config], ReturnModel]] = {
    "mean": lambda _: return_distributions.expected(),
    "categorical": lambda c: return_distributions.categorical(c.return_min, c.return_max, c.atoms),
    "quantile": lambda c: return_distributions.quantiles(c.atoms),
    "rescaled": lambda _: return_distributions.rescaled(),
}


def rungs(config: Config, lanes: int, lane: Array) -> Tree:
    """The exponent of epsilon in each lane; empty where all have one epsilon."""
    return 1.0 + config.ladder * height(lane, lanes) if config.ladder else ()


def height(lane: Array, lanes: int) -> Array:
    """A lane's place on the ladder, from 0 to 1; lanes of an evaluation may lie beyond, at 1."""
    return jnp.minimum(lane, lanes - 1) / max(lanes - 1, 1)


def acting(config: Config, state: State) -> Weights:
    epsilon = linear(config.epsilon_start, config.epsilon_end, state.steps, config.epsilon_steps)
    return Weights(state.params, epsilon)


def learning(config: Config, state: State) -> Variables:
    importance = linear(config.importance_start, 1.0, state.steps, config.importance_steps)
    return Variables(state.params, state.target, importance)


def act(
    config: Config,
    model: Model,
    weights: Weights,
    carry: Tree,
    obs: Tree,
    keys: Array,
    explore: bool,
) -> Tree:
    """The best action, or with probability epsilon a random one that is allowed.

    Noisy layers draw new noise for every step and lane, and none for greedy actions.
    """
    params = with_noise(weights.params, keys) if explore else weights.params
    q = q_of(model.returns, model.network.apply(params, obs), obs)
    epsilon = epsilon_of(config, weights, carry) if explore else None
    return epsilon_greedy(q, obs, keys, epsilon), carry, ()


def epsilon_of(config: Config, weights: Weights, rung: Tree) -> Array:
    """The share of random actions, for all lanes or each."""
    return weights.epsilon[None] ** rung if config.ladder else weights.epsilon


def epsilon_greedy(q: Array, obs: Tree, keys: Array, epsilon: Array | None) -> Array:
    """The best action, or with probability epsilon a random one that is allowed."""
    greedy = q.argmax(-1).astype(jnp.int32)
    if epsilon is None:
        return greedy
    allowed = distributions.masked(jnp.zeros_like(q), mask_of(obs))
    anything = distributions.categorical(q.shape[-1]).sample(allowed, random.fold(keys, 0))
    explores = random.uniform(random.fold(keys, 1), 1)[:, 0] < epsilon
    return jnp.where(explores, anything, greedy)


def transitions(tr: Trajectory, discount: float, n_step: int) -> Transitions:
    """n-step transitions, time first as in the trajectory."""
    ends = tr.terminated, tr.truncated, tr.valid
    reward, worth, offset, valid = n_step_returns(tr.reward, *ends, discount, n_step)
    return Transitions(tr.obs, tr.action[: len(reward)], reward, worth, offset, valid)


def prepare(
    config: Config, model: Model, weights: Weights, tr: Trajectory
) -> tuple[Transitions, Array]:
    """n-step transitions with initial priorities, and the number of steps."""
    items = transitions(tr, config.discount, config.n_step)
    priority = jnp.ones_like(items.reward)
    if config.prioritised:  # by the actor's weights
        out = model.network.apply(weights.params, tr.obs)
        best = model.returns.of(out, q_of(model.returns, out, tr.obs).argmax(-1))
        taken = model.returns.of(out[: config.rollout], items.action)
        targets = items.reward, items.discount, items.offset, best
        priority = misfit_along(model.returns, taken, *targets).priority
    items = items._replace(priority=priority)
    steps = tr.valid[config.n_step - 1 :].sum(0)  # the overlap was counted last time
    return swap_time(items), steps


def misfit_along(
    returns: ReturnModel, taken: Array, reward: Array, discount: Array, offset: Array, best: Array
) -> Misfit:
    """The errors of rows [T, b] against n-step targets.

    `taken` are the outputs for the actions taken; `best`, of all rows that can be successors, the
    outputs for the best actions there.
    """
    row, lane = jnp.indices(reward.shape)
    ahead = best[row + offset, lane]
    rows = (x.reshape(-1, *x.shape[2:]) for x in (taken, reward, discount, ahead))
    misfit = returns.misfit(*rows)
    return jax.tree.map(lambda x: x.reshape(reward.shape), misfit)


def absorb(config: Config, state: State, steps: Array) -> Tree:
    horizon = max(config.epsilon_steps, config.importance_steps, config.anneal_steps or 0)
    return count_steps(horizon, state, steps)


def loss(
    config: Config,
    model: Model,
    params: Tree,
    variables: Variables,
    batch: TransitionBatch,
    key: Array,
) -> tuple[Array, tuple[Misfit, Array]]:
    """The weighted loss, with each row's errors and value.

    Noisy layers draw one noise for all rows, and another for each network.
    """
    returns, apply = model.returns, model.network.apply
    taken = returns.of(apply(with_noise(params, key), batch.obs), batch.action)
    out = apply(with_noise(variables.target, key, 1), batch.next_obs)
    chooser = out
    if config.double:
        chooser = apply(with_noise(variables.params, key, 2), batch.next_obs)
    best = q_of(returns, chooser, batch.next_obs).argmax(-1)
    misfit = returns.misfit(taken, batch.reward, batch.discount, returns.of(out, best))
    weight = importance_weights(batch.ratio, variables.importance, batch.valid)
    return masked_mean(weight * misfit.loss, batch.valid), (misfit, returns.mean(taken))


def gradient(
    config: Config, model: Model, variables: Variables, batch: TransitionBatch, key: Array
) -> Tree:
    """The gradient of the loss, with new priorities as feedback to memory."""
    value_and_grad = jax.value_and_grad(partial(loss, config, model), has_aux=True)
    (value, (misfit, worth)), grads = value_and_grad(variables.params, variables, batch, key)
    metrics = {
        "loss/q": value,
        "q": masked_mean(worth, batch.valid),
        "td_error": masked_mean(jnp.abs(misfit.td), batch.valid),
        "grad_norm": optax.tree.norm(grads),
    }
    return grads, batch.valid.sum().astype(jnp.float32), misfit.priority, metrics


def update(
    config: Config, optimiser: optax.GradientTransformation, state: State, grads: Tree
) -> State:
    direction, opt_state = optimiser.update(grads, state.opt_state)
    rate: Array | float = config.learning_rate
    if config.anneal_steps:
        rate = linear(config.learning_rate, 0.0, state.steps, config.anneal_steps)
    params = jax.tree.map(lambda p, d: p - rate * d, state.params, direction)
    updates = (state.updates + 1) % config.target_every
    moves = jnp.where(updates == 0, config.target_rate, 0.0)
    target = optax.incremental_update(params, state.target, moves)
    return state._replace(params=params, target=target, opt_state=opt_state, updates=updates)


def memory_for(config: Any, spec: EnvSpec, draws: int) -> Memory:
    """The replay for a `Config` with this module's fields, or those of `ddpg`."""
    sizes = config.capacity, config.batch, draws
    warmup_rounds = math.ceil(config.warmup / (spec.lanes * config.rollout))
    ahead, space = config.n_step, spec.observation
    if config.prioritised:
        return prioritised(*sizes, config.priority_exponent, warmup_rounds, ahead, space)
    return uniform(*sizes, warmup_rounds, ahead, space)


def init(
    network_init: Callable[[Array], Tree], optimiser: optax.GradientTransformation, key: Array
) -> State:
    params = network_init(key)
    return State(params, params, optimiser.init(params), jnp.int32(0), jnp.int32(0))


def actions_of(config: object, spec: EnvSpec) -> int:
    """The number of discrete actions; `config` tells which algorithm needs them."""
    if isinstance(spec.action, Discrete):
        return spec.action.n
    raise RondelError(
        f"{name_by_config(config)} needs discrete actions; {spec.id} has {spec.action}. "
        "Use ppo or sac."
    )


def make(config: Config, spec: EnvSpec, network: Network | None = None) -> Algorithm:
    """DQN for discrete actions; `network` is the user's own torso, if any."""
    actions = actions_of(config, spec)
    model = Model(network_for(config, spec, actions, network), returns_for(config))
    optimiser = adam(config.max_grad_norm)
    return Algorithm(
        init=partial(init, model.network.init, optimiser),
        acting=partial(acting, config),
        learning=partial(learning, config),
        absorb=partial(absorb, config),
        gradient=partial(gradient, config, model),
        update=partial(update, config, optimiser),
        act=partial(act, config, model),
        prepare=partial(prepare, config, model),
        memory=memory_for(config, spec, config.updates),
        rollout=config.rollout,
        carry=partial(rungs, config, spec.lanes),
        overlap=config.n_step - 1,
        max_lag=CARD.max_lag,
    )
