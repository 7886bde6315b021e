"""Deep Q-networks, with the usual improvements as fields.

Mnih et al., Playing Atari with Deep Reinforcement Learning, arXiv 1312.5602; van Hasselt et al.,
Deep Reinforcement Learning with Double Q-learning, arXiv 1509.06461; Wang et al., Dueling Network
Architectures, arXiv 1511.06581; Schaul et al., Prioritized Experience Replay, arXiv 1511.05952.
The network is a perceptron; behind an image or a network of the user's own there is one layer, or
the two streams of a dueling network. Rows of a batch are [n, ...].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rondel import nets, ops
from rondel.errors import RondelError, at_least, from_zero_to_one
from rondel.memory.replay import TransitionBatch, Transitions, prioritised, uniform
from rondel.ops import distributions
from rondel.spaces import Discrete
from rondel.types import Algorithm, Array, EnvSpec, Memory, Network, Trajectory, Tree

FAMILY = "value-based"
ACTIONS = "discrete"
PAPER = "Playing Atari with Deep Reinforcement Learning, arXiv 1312.5602"
RECURRENT = False  # can it remember an episode?
HOME = "all"  # the plan that suits it
MAX_LAG = None
LANES = 8  # unless the run says otherwise


@dataclass(frozen=True)
class Config:
    """What can be set."""

    rollout: int = 8  # steps that each lane takes in a round
    updates: int = 32  # gradient steps of a round
    batch: int = 64  # transitions of a gradient step
    capacity: int = 50_000  # transitions that memory holds
    warmup: int = 1_000  # environment steps before the first gradient step
    learning_rate: float = 5e-4  # Adam's step size
    anneal_steps: int | None = None  # environment steps over which the step size falls to 0
    discount: float = 0.99  # worth of a reward one step later
    n_step: int = 1  # rewards that are summed before bootstrapping
    double: bool = True  # choose the next action by the online network, value it by the target
    dueling: bool = False  # separate streams for state value and advantages
    prioritised: bool = False  # draw by TD error instead of uniformly
    priority_exponent: float = 0.6  # 0: uniform, 1: proportional to the TD error
    importance_start: float = 0.4  # exponent of the importance weights at first; it grows to 1
    importance_steps: int = 100_000  # environment steps over which it grows
    target_every: int = 100  # gradient steps between updates of the target network
    target_rate: float = 1.0  # how far the target moves then; below 1 it is a Polyak average
    epsilon_start: float = 1.0  # share of random actions at first
    epsilon_end: float = 0.05  # share of random actions in the end
    epsilon_steps: int = 10_000  # environment steps in between
    max_grad_norm: float = 10.0  # gradients beyond this norm are scaled down to it
    hidden: tuple[int, ...] = (128, 128)  # widths of the hidden layers
    network: str = "auto"  # auto, mlp, nature, impala, minatar, or your own as module:function

    def __post_init__(self) -> None:
        at_least(1, rollout=self.rollout, updates=self.updates, batch=self.batch)
        at_least(1, capacity=self.capacity, n_step=self.n_step, target_every=self.target_every)
        at_least(1, epsilon_steps=self.epsilon_steps, importance_steps=self.importance_steps)
        at_least(1, hidden=min(self.hidden, default=1), anneal_steps=self.anneal_steps)
        at_least(0, learning_rate=self.learning_rate, warmup=self.warmup)
        from_zero_to_one(discount=self.discount, target_rate=self.target_rate)
        from_zero_to_one(epsilon_start=self.epsilon_start, epsilon_end=self.epsilon_end)


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


def q_learning_target(reward: Array, discount: Array, next_q: Array, chooser: Array) -> Array:
    """r + γ Q(s', argmax chooser(s')): plain with chooser = next_q, double with the online one."""
    best = jax.nn.one_hot(chooser.argmax(-1), next_q.shape[-1])
    return reward + discount * jnp.sum(next_q * best, -1)


def importance_weights(ratio: Array, exponent: Array, valid: Array) -> Array:
    """(N P)^-β, scaled so that the largest of the batch is 1."""
    weight = jnp.where(valid, jnp.maximum(ratio, 1e-12) ** -exponent, 0.0)
    return weight / jnp.maximum(weight.max(), 1e-12)


def linear(start: float, end: float, steps: Array, horizon: int) -> Array:
    """From start to end over `horizon` steps, then end."""
    return start + (end - start) * jnp.minimum(steps / horizon, 1.0)


def network_for(config: Config, spec: EnvSpec, actions: int, own: Network | None = None) -> Network:
    """A perceptron where nothing asks for more."""
    kind = nets.choose(config.network, spec.observation)
    if own is None and kind == "mlp" and not config.dueling:
        return nets.mlp(spec.observation, config.hidden, actions, activation=jax.nn.relu)
    shared, stream = config.hidden[:-1], config.hidden[-1:]  # where there are streams
    torso, width = nets.torso(kind, spec.observation, shared, jax.nn.relu, own)
    if config.dueling:
        return nets.dueling(torso, width, actions, stream, jax.nn.relu)
    return nets.action_values(torso, width, actions)


def q_values(network: Network, params: Tree, obs: Tree) -> Array:
    """What each action is worth; one that is not allowed is worth next to nothing."""
    return distributions.masked(network.apply(params, obs), nets.mask_of(obs))


def acting(config: Config, state: State) -> Weights:
    epsilon = linear(config.epsilon_start, config.epsilon_end, state.steps, config.epsilon_steps)
    return Weights(state.params, epsilon)


def learning(config: Config, state: State) -> Variables:
    importance = linear(config.importance_start, 1.0, state.steps, config.importance_steps)
    return Variables(state.params, state.target, importance)


def act(
    network: Network, weights: Weights, carry: Tree, obs: Tree, keys: Array, explore: bool
) -> Tree:
    """The best action, or with probability epsilon any that is allowed."""
    q = q_values(network, weights.params, obs)
    greedy = q.argmax(-1).astype(jnp.int32)
    if not explore:
        return greedy, carry, ()
    allowed = distributions.masked(jnp.zeros_like(q), nets.mask_of(obs))
    anything = distributions.categorical(q.shape[-1]).sample(allowed, ops.random.fold(keys, 0))
    explores = ops.random.uniform(ops.random.fold(keys, 1), 1)[:, 0] < weights.epsilon
    return jnp.where(explores, anything, greedy), carry, ()


def prepare(
    config: Config, network: Network, weights: Weights, tr: Trajectory
) -> tuple[Transitions, Array]:
    """n-step transitions, with first priorities, and how many steps there were."""
    reward, discount, offset, valid = ops.n_step(
        tr.reward, tr.terminated, tr.truncated, tr.valid, config.discount, config.n_step
    )
    rows = config.rollout
    action = tr.action[:rows]
    priority = jnp.ones_like(reward)
    if config.prioritised:  # as the actor sees it, so that nothing is drawn blindly
        q = q_values(network, weights.params, tr.obs)
        taken = jnp.sum(q[:rows] * jax.nn.one_hot(action, q.shape[-1]), -1)
        ahead = jnp.take_along_axis(q.max(-1), jnp.arange(rows)[:, None] + offset, 0)
        priority = jnp.abs(reward + discount * ahead - taken)
    items = Transitions(tr.obs, action, reward, discount, offset, valid, priority)
    steps = tr.valid[config.n_step - 1 :].sum(0)  # the overlap was counted last time
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), items), steps


def absorb(config: Config, state: State, steps: Array) -> State:
    horizon = max(config.epsilon_steps, config.importance_steps, config.anneal_steps or 0)
    return state._replace(steps=jnp.minimum(state.steps + steps.sum(), horizon))


def loss(
    config: Config, network: Network, params: Tree, variables: Variables, batch: TransitionBatch
) -> tuple[Array, tuple[Array, Array]]:
    """Huber's loss of the TD errors, weighted; with the errors and the values, row by row."""
    q = network.apply(params, batch.obs)
    taken = jnp.sum(q * jax.nn.one_hot(batch.action, q.shape[-1]), -1)
    next_q = q_values(network, variables.target, batch.next_obs)
    chooser = q_values(network, variables.params, batch.next_obs) if config.double else next_q
    target = q_learning_target(batch.reward, batch.discount, next_q, chooser)
    td = taken - jax.lax.stop_gradient(target)
    weight = importance_weights(batch.ratio, variables.importance, batch.valid)
    return ops.masked_mean(weight * optax.losses.huber_loss(td), batch.valid), (td, taken)


def gradient(
    config: Config, network: Network, variables: Variables, batch: TransitionBatch, key: Array
) -> Tree:
    """With the absolute TD errors as feedback to memory."""
    del key
    value_and_grad = jax.value_and_grad(partial(loss, config, network), has_aux=True)
    (value, (td, taken)), grads = value_and_grad(variables.params, variables, batch)
    metrics = {
        "loss/q": value,
        "q": ops.masked_mean(taken, batch.valid),
        "td_error": ops.masked_mean(jnp.abs(td), batch.valid),
        "grad_norm": optax.tree.norm(grads),
    }
    return grads, batch.valid.sum().astype(jnp.float32), jnp.abs(td), metrics


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


def memory_for(config: Config, spec: EnvSpec) -> Memory:
    sizes = config.capacity, config.batch, config.updates
    warmup_rounds = math.ceil(config.warmup / (spec.lanes * config.rollout))
    ahead, space = config.n_step, spec.observation
    if config.prioritised:
        return prioritised(*sizes, config.priority_exponent, warmup_rounds, ahead, space)
    return uniform(*sizes, warmup_rounds, ahead, space)


def make(config: Config, spec: EnvSpec, network: Network | None = None) -> Algorithm:
    """DQN for an environment with discrete actions.

    `network` is one of the user's own, from observations to features.
    """
    if not isinstance(spec.action, Discrete):
        raise RondelError(
            f"DQN needs discrete actions, but those of {spec.id} are {spec.action}; "
            "ppo takes continuous ones."
        )
    model = network_for(config, spec, spec.action.n, network)
    clip_norm = optax.clip_by_global_norm(config.max_grad_norm)
    optimiser = optax.flatten(optax.chain(clip_norm, optax.scale_by_adam()))

    def init(key: Array) -> State:
        params = model.init(key)
        return State(params, params, optimiser.init(params), jnp.int32(0), jnp.int32(0))

    return Algorithm(
        init=init,
        acting=partial(acting, config),
        learning=partial(learning, config),
        absorb=partial(absorb, config),
        gradient=partial(gradient, config, model),
        update=partial(update, config, optimiser),
        act=partial(act, model),
        prepare=partial(prepare, config, model),
        memory=memory_for(config, spec),
        rollout=config.rollout,
        overlap=config.n_step - 1,
        max_lag=MAX_LAG,
    )
