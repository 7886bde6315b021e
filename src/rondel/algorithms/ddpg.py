"""Deep deterministic policy gradients; TD3 and Ape-X DDPG are this module with other fields.

Lillicrap et al., Continuous control with deep reinforcement learning, arXiv 1509.02971; Fujimoto et
al., Addressing Function Approximation Error in Actor-Critic Methods (TD3), arXiv 1802.09477; Horgan
et al., Distributed Prioritized Experience Replay (Ape-X), arXiv 1803.00933. Actions are in units of
-1..1. Rows of a batch are [n, ...], values of c critics [c, n].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from rondel.algorithms.card import Card, name_by_config
from rondel.algorithms.descent import count_steps
from rondel.algorithms.dqn import height, importance_weights, linear, memory_for, transitions
from rondel.algorithms.ranges import check_ranges
from rondel.errors import RondelError
from rondel.memory.replay import TransitionBatch, Transitions
from rondel.nets.heads import ensemble, make_critic, make_policy
from rondel.nets.torso import make_torso
from rondel.ops import random
from rondel.ops.optimisers import packed
from rondel.ops.returns import swap_time
from rondel.ops.statistics import masked_mean
from rondel.spaces import Box
from rondel.types import Algorithm, Array, EnvSpec, Network, Trajectory, Tree

CARD = Card(
    family="off-policy",
    actions="continuous",
    paper="Continuous control with deep reinforcement learning, arXiv 1509.02971",
    max_lag=None,
)


@dataclass(frozen=True)
class Config:
    """The algorithm's fields."""

    rollout: int = 2  # steps that each lane takes in a round
    updates_per_step: float = 1.0  # gradient steps per call of the environment
    batch: int = 256  # transitions per gradient step
    capacity: int = 200_000  # transitions kept in memory
    warmup: int = 1_000  # environment steps of random actions before the first gradient step
    policy_rate: float = 1e-3  # Adam's step size for the policy
    critic_rate: float = 1e-3  # Adam's step size for the critics
    discount: float = 0.99  # discount of a reward per step
    n_step: int = 1  # rewards summed before bootstrapping
    critics: int = 1  # number of critics; the lowest of their values counts
    policy_every: int = 1  # gradient steps of the critics per step of the policy and the targets
    target_rate: float = 0.005  # share of the targets replaced each time
    target_noise: float = 0.0  # deviation of the noise on the actions of targets
    target_noise_clip: float = 0.5  # bound of that noise
    noise: float = 0.1  # deviation of the noise on actions
    ladder: float = 0.0  # α: lane i of N has noise ** (1 + α i / (N - 1)); 0: one deviation for all
    prioritised: bool = False  # draw by TD error instead of uniformly
    priority_exponent: float = 0.6  # 0: uniform, 1: proportional to the TD error
    importance_start: float = 0.4  # initial exponent of the importance weights; it grows to 1
    importance_steps: int = 100_000  # environment steps over which it grows
    hidden: tuple[int, ...] = (256, 256)  # widths of the hidden layers
    network: str = "auto"  # auto, mlp, nature, impala, minatar, board, or your own module:function

    def __post_init__(self) -> None:
        check_ranges(self)


class Model(NamedTuple):
    policy: Network  # (params, obs) -> [n, actions], before tanh
    critic: Network  # (params, (obs, action)) -> [n]
    critics: Network  # several of them: [c, n]
    actions: int


class State(NamedTuple):
    params: Tree  # {"policy", "critics"}
    target: Tree
    opt_state: Tree
    steps: Array  # environment steps so far, no further than the schedules need
    updates: Array  # gradient steps since the policy moved


class Weights(NamedTuple):
    policy: Tree
    critics: Tree  # () where no priorities need them
    warm: Array  # () bool: random actions are over


class Variables(NamedTuple):
    params: Tree
    target: Tree
    importance: Array  # exponent of the importance weights
    turn: Array  # () bool: this step moves the policy too


def lane_noise(config: Config, lane: Array, lanes: int) -> Array:
    """Each lane's deviation, σ^(1 + α i / (N - 1)), as Ape-X has it for DQN's ε."""
    return jnp.float32(config.noise) ** (1.0 + config.ladder * height(lane, lanes))


def smoothed(action: Array, noise: Array, deviation: float, clip: float) -> Array:
    """TD3's target action: clip(a + clip(σ noise, -c, c), -1, 1), equations 14 and 15."""
    return jnp.clip(action + jnp.clip(deviation * noise, -clip, clip), -1.0, 1.0)


def bellman_target(reward: Array, discount: Array, next_q: Array) -> Array:
    """r + γ min over critics of Q(s', a'), with next_q [c, n]: TD3's clipped double Q-learning."""
    return reward + discount * next_q.min(0)


def model_for(
    spec: EnvSpec,
    network: str,
    hidden: tuple[int, ...],
    critics: int,
    outputs: int = 1,
    own: Network | None = None,
) -> Model:
    """A policy and critics, each behind a torso of its own for an image or an `own` network.

    `outputs` is the number of the policy's outputs per action.
    """
    actions = spec.action.shape[0]
    seen = make_torso(network, spec.observation, (), own=own)
    critic = make_critic(*seen, actions, hidden)
    policy = make_policy(*seen, outputs * actions, hidden)
    return Model(policy, critic, ensemble(critic, critics), actions)


def act(
    config: Config,
    model: Model,
    weights: Weights,
    carry: Tree,
    obs: Tree,
    keys: Array,
    explore: bool,
) -> Tree:
    """The policy's action with noise, whose deviation is the carry on a ladder; random at first."""
    action = jnp.tanh(model.policy.apply(weights.policy, obs))
    if not explore:
        return action, carry, ()
    normal = random.normal(random.fold(keys, 0), model.actions)
    anything = random.uniform(random.fold(keys, 1), model.actions, -1.0, 1.0)
    noise = carry[:, None] if config.ladder else config.noise
    noisy = jnp.clip(action + noise * normal, -1.0, 1.0)
    return jnp.where(weights.warm, noisy, anything), carry, ()


def prepare_one_step(discount: float, weights: Tree, tr: Trajectory) -> tuple[Transitions, Array]:
    """One-step transitions, and the number of steps."""
    del weights
    return swap_time(transitions(tr, discount, 1)), tr.valid.sum(0)


def first_priority(model: Model, weights: Weights, items: Transitions) -> Array:
    """The absolute TD errors [T, b] by the actor's weights."""
    action = jnp.tanh(model.policy.apply(weights.policy, items.obs))
    ahead = model.critics.apply(weights.critics, (items.obs, action)).min(0)
    rows = jnp.arange(items.reward.shape[0])[:, None] + items.offset
    target = items.reward + items.discount * jnp.take_along_axis(ahead, rows, 0)
    seen = jax.tree.map(lambda x: x[: items.reward.shape[0]], items.obs)
    q = model.critics.apply(weights.critics, (seen, items.action))
    return jnp.abs(q - target[None]).mean(0)


def prepare(
    config: Config, model: Model, weights: Weights, tr: Trajectory
) -> tuple[Transitions, Array]:
    """n-step transitions with initial priorities, and the number of steps."""
    items = transitions(tr, config.discount, config.n_step)
    if config.prioritised:
        items = items._replace(priority=first_priority(model, weights, items))
    steps = tr.valid[config.n_step - 1 :].sum(0)  # the overlap was counted last time
    return swap_time(items), steps


def acting(config: Config, state: State) -> Weights:
    critics = state.params["critics"] if config.prioritised else ()
    return Weights(state.params["policy"], critics, state.steps >= config.warmup)


def learning(config: Config, state: State) -> Variables:
    importance = linear(config.importance_start, 1.0, state.steps, config.importance_steps)
    turn = state.updates + 1 >= config.policy_every
    return Variables(state.params, state.target, importance, turn)


def critic_loss(
    model: Model, params: Tree, batch: TransitionBatch, target: Array, weight: Array
) -> tuple[Array, Array]:
    """Half the squared TD errors, weighted, summed over critics; with the values [c, n]."""
    q = model.critics.apply(params, (batch.obs, batch.action))
    error = 0.5 * jnp.sum((q - target[None]) ** 2, 0)
    return masked_mean(weight * error, batch.valid), q


def policy_loss(model: Model, policy: Tree, critics: Tree, batch: TransitionBatch) -> Array:
    """-Q(s, π(s)) by the first critic: its slope is the deterministic policy gradient."""
    action = jnp.tanh(model.policy.apply(policy, batch.obs))
    first = jax.tree.map(lambda x: x[0], critics)
    return -masked_mean(model.critic.apply(first, (batch.obs, action)), batch.valid)


def next_actions(config: Config, model: Model, policy: Tree, obs: Tree, key: Array) -> Array:
    action = jnp.tanh(model.policy.apply(policy, obs))
    if config.target_noise == 0.0:
        return action
    normal = random.normal(key, action.size).reshape(action.shape)
    return smoothed(action, normal, config.target_noise, config.target_noise_clip)


def gradient(
    config: Config, model: Model, variables: Variables, batch: TransitionBatch, key: Array
) -> Tree:
    """The gradients of critics and policy, with the absolute TD errors as feedback to memory."""
    params, valid = variables.params, batch.valid
    action = next_actions(config, model, variables.target["policy"], batch.next_obs, key)
    next_q = model.critics.apply(variables.target["critics"], (batch.next_obs, action))
    target = bellman_target(batch.reward, batch.discount, next_q)
    weight = importance_weights(batch.ratio, variables.importance, valid)
    value_and_grad = jax.value_and_grad(partial(critic_loss, model), has_aux=True)
    (loss, q), critics = value_and_grad(params["critics"], batch, target, weight)

    def slope(policy: Tree) -> Tree:
        return jax.grad(partial(policy_loss, model))(policy, params["critics"], batch)

    grads = {"critics": critics}
    if config.policy_every == 1:
        grads["policy"] = slope(params["policy"])
    else:  # computed only when needed; `turn` goes along, as the update may come later
        nothing = partial(jax.tree.map, jnp.zeros_like)
        grads["policy"] = jax.lax.cond(variables.turn, slope, nothing, params["policy"])
        grads["turn"] = variables.turn.astype(jnp.float32)
    error = jnp.abs(q - target[None]).mean(0)
    metrics = {
        "loss/critic": loss,
        "q": masked_mean(q.mean(0), valid),
        "td_error": masked_mean(error, valid),
        "grad_norm": optax.tree.norm(critics),
    }
    return grads, valid.sum().astype(jnp.float32), error, metrics


def optimiser() -> optax.GradientTransformation:
    return packed(optax.scale_by_adam())


def descend(rate: float, params: Tree, opt_state: Tree, grads: Tree) -> tuple[Tree, Tree]:
    """One step of Adam."""
    direction, opt_state = optimiser().update(grads, opt_state)
    return jax.tree.map(lambda p, d: p - rate * d, params, direction), opt_state


def descend_each(state: Tree, grads: Tree, **rates: float) -> dict[str, tuple[Tree, Tree]]:
    """A step of each named part, at its own rate: its parameters and the optimiser's state."""
    return {
        name: descend(rate, state.params[name], state.opt_state[name], grads[name])
        for name, rate in rates.items()
    }


def update(config: Config, state: State, grads: Tree) -> State:
    """A step of the critics; of the policy and both targets only every `policy_every` steps."""
    both = descend_each(state, grads, policy=config.policy_rate, critics=config.critic_rate)
    turn = jnp.bool_(True)
    if config.policy_every > 1:
        turn = grads["turn"] > 0.0
        before = state.params["policy"], state.opt_state["policy"]
        both["policy"] = jax.tree.map(lambda n, o: jnp.where(turn, n, o), both["policy"], before)
    params, opt_state = ({name: pair[i] for name, pair in both.items()} for i in range(2))
    target_rate = jnp.where(turn, config.target_rate, 0.0)
    target = optax.incremental_update(params, state.target, target_rate)
    updates = jnp.where(turn, 0, state.updates + 1)
    return state._replace(params=params, target=target, opt_state=opt_state, updates=updates)


def draws_of(updates_per_step: float, spec: EnvSpec, rollout: int) -> int:
    """The number of gradient steps per round, rounded."""
    steps = spec.lanes * rollout
    draws = round(updates_per_step * steps)
    if draws < 1:
        raise RondelError(
            f"updates_per_step must give a gradient step in each round of {steps} environment "
            f"steps, got {updates_per_step}. Use {1 / steps:.3g} or more, or a longer rollout."
        )
    return draws


def check_actions(spec: EnvSpec, name: str) -> None:
    """Refuse actions that are not a bounded Box of one axis."""
    if not (isinstance(spec.action, Box) and len(spec.action.shape) == 1):
        raise RondelError(
            f"{name} needs continuous actions, a Box of one axis; {spec.id} has {spec.action}. "
            "Use ppo or dqn."
        )
    if not np.isfinite([spec.action.low, spec.action.high]).all():
        raise RondelError(
            f"{name} needs bounded actions; {spec.id} has {spec.action}. Use a Box with bounds, or "
            "ppo."
        )


def make(config: Config, spec: EnvSpec, network: Network | None = None) -> Algorithm:
    """DDPG for continuous actions; `network` is the user's own torso, if any."""
    check_actions(spec, name_by_config(config))
    model = model_for(spec, config.network, config.hidden, config.critics, own=network)

    def init(key: Array) -> State:
        k_policy, k_critics = jax.random.split(key)
        params = {"policy": model.policy.init(k_policy), "critics": model.critics.init(k_critics)}
        opt_state = {name: optimiser().init(part) for name, part in params.items()}
        return State(params, params, opt_state, jnp.int32(0), jnp.int32(0))

    return Algorithm(
        init=init,
        acting=partial(acting, config),
        learning=partial(learning, config),
        absorb=partial(count_steps, max(config.warmup, config.importance_steps)),
        gradient=partial(gradient, config, model),
        update=partial(update, config),
        act=partial(act, config, model),
        carry=lambda lane: lane_noise(config, lane, spec.lanes) if config.ladder else (),
        prepare=partial(prepare, config, model),
        memory=memory_for(config, spec, draws_of(config.updates_per_step, spec, config.rollout)),
        rollout=config.rollout,
        overlap=config.n_step - 1,
        max_lag=CARD.max_lag,
    )
