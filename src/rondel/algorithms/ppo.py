"""Proximal policy optimisation.

Schulman et al., Proximal Policy Optimization Algorithms, arXiv 1707.06347; advantages after
Schulman et al., High-Dimensional Continuous Control Using Generalized Advantage Estimation, arXiv
1506.02438. Policy and value are two perceptrons; behind an image, a memory or a network of the
user's own they share all but their last layers. Rows of a minibatch are [n, ...]; with a memory a
row is a sequence [L, ...].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from rondel import nets, ops
from rondel.errors import RondelError, at_least, from_zero_to_one
from rondel.memory.rollout import rollout
from rondel.ops import distributions
from rondel.ops.distributions import Distribution
from rondel.spaces import Box
from rondel.types import Algorithm, Array, EnvSpec, Network, Trajectory, Tree

FAMILY = "on-policy"
ACTIONS = "discrete, continuous"
PAPER = "Proximal Policy Optimization Algorithms, arXiv 1707.06347"
RECURRENT = True  # can it remember an episode?
HOME = "actor*4 | learner"  # the plan that suits it
MAX_LAG = 0
LANES = 16  # unless the run says otherwise

# (params, (rows, advantages)) -> (loss, metrics)
Loss: TypeAlias = Callable[[Tree, Tree], tuple[Array, dict[str, Array]]]


@dataclass(frozen=True)
class Config:
    """What can be set."""

    rollout: int = 128  # steps that each lane takes in a round
    epochs: int = 8  # passes over a round's rows
    minibatches: int = 8  # pieces of a pass, one gradient step each
    learning_rate: float = 1e-3  # Adam's step size
    anneal_steps: int | None = None  # environment steps over which the step size falls to 0
    discount: float = 0.99  # worth of a reward one step later
    gae_lambda: float = 0.95  # 0: one-step advantages, 1: whole returns
    clip: float = 0.2  # how far the probability ratio may move with profit
    value_clip: float | None = None  # how far a value may move with profit
    value_cost: float = 0.5  # weight of the value loss
    entropy_cost: float = 0.0  # weight of the entropy bonus
    normalise_advantage: bool = True  # zero mean and unit deviation in each minibatch
    max_grad_norm: float = 0.5  # gradients beyond this norm are scaled down to it
    target_kl: float | None = None  # skip the rest of a round's steps once beyond 1.5 times this
    log_std: float = 0.0  # the log of the first deviation of continuous actions, in units of -1..1
    hidden: tuple[int, ...] = (64, 64)  # widths of the hidden layers
    network: str = "auto"  # auto, mlp, nature, impala, minatar, or your own as module:function
    memory: str = "none"  # what it remembers an episode with: none, gru, lstm
    memory_size: int = 128  # width of that
    sequence: int = 16  # steps that are learned from in one piece, where there is a memory

    def __post_init__(self) -> None:
        at_least(1, rollout=self.rollout, epochs=self.epochs, minibatches=self.minibatches)
        at_least(1, hidden=min(self.hidden, default=1), anneal_steps=self.anneal_steps)
        at_least(1, memory_size=self.memory_size, sequence=self.sequence)
        at_least(0, learning_rate=self.learning_rate, clip=self.clip)
        from_zero_to_one(discount=self.discount, gae_lambda=self.gae_lambda)


class State(NamedTuple):
    params: Tree
    opt_state: Tree
    steps: Array  # environment steps so far, no further than the annealing needs
    stopped: Array  # beyond target_kl: no further updates in this round


class Rows(NamedTuple):
    """Items [b, T, ...] on their way to memory, minibatches [n, ...] when they come back.

    With a memory: items [b, T / L, L, ...], minibatches [n, L, ...].
    """

    obs: Tree
    action: Array
    log_prob: Array  # of the action when it was taken
    value: Array  # of obs, as the acting weights saw it
    advantage: Array
    valid: Array
    first: Array | None = None  # where episodes begin; only with a memory, as the next one
    carry: Tree = ()  # [b, T / L, ...]: what was remembered before each sequence


def clipped_surrogate(ratio: Array, advantage: Array, clip: float) -> Array:
    """What the policy maximises: min(ρA, clip(ρ, 1-ε, 1+ε)A), equation 7."""
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def value_loss(value: Array, old_value: Array, target: Array, clip: float | None) -> Array:
    """Half the squared error; with a clip, the worse of it and that of the clipped value."""
    loss = 0.5 * (value - target) ** 2
    if clip is None:
        return loss
    near = old_value + jnp.clip(value - old_value, -clip, clip)
    return jnp.maximum(loss, 0.5 * (near - target) ** 2)


def network_for(
    config: Config, spec: EnvSpec, outputs: int, own: Network | None = None
) -> nets.ActorCritic:
    """Two perceptrons where nothing asks for more."""
    kind = nets.choose(config.network, spec.observation)
    if own is None and config.memory == "none" and kind == "mlp":
        policy = nets.mlp(spec.observation, config.hidden, outputs, last_scale=0.01)
        return nets.separate(policy, nets.mlp(spec.observation, config.hidden, 1))
    torso, width = nets.torso(kind, spec.observation, config.hidden, own=own)
    memory = None
    if config.memory != "none":
        memory = nets.cell(config.memory, width, config.memory_size)
        if config.rollout % config.sequence:
            fits = [n for n in range(1, config.rollout + 1) if config.rollout % n == 0]
            raise RondelError(
                f"sequence={config.sequence} doesn't divide rollout={config.rollout}: "
                f"{', '.join(map(str, fits))} would."
            )
    return nets.shared(torso, width, outputs, memory)


def pi(params: Tree, out: Array, obs: Tree) -> Array:
    """The parameters of the actions' distribution, from what the network says."""
    if "log_std" in params:
        return jnp.concatenate([out, jnp.broadcast_to(params["log_std"], out.shape)], -1)
    return distributions.masked(out, nets.mask_of(obs))


def act(
    model: nets.ActorCritic,
    dist: Distribution,
    params: Tree,
    carry: Tree,
    obs: Tree,
    keys: Array,
    explore: bool,
) -> Tree:
    carry, judged = model.step(params, carry, obs)
    out = pi(params, judged.policy, obs)
    action = dist.sample(out, keys) if explore else dist.mode(out)
    return action, carry, dist.log_prob(out, action)


def prepare(
    config: Config, model: nets.ActorCritic, params: Tree, tr: Trajectory
) -> tuple[Rows, Array]:
    """Rows with advantages, and how many steps there were."""
    (_, value), carries = model.unroll(params, tr.carry, tr.obs, tr.first)
    ends = tr.terminated, tr.truncated, tr.valid
    advantage = ops.gae(tr.reward, value, *ends, config.discount, config.gae_lambda)
    obs = jax.tree.map(lambda x: x[:-1], tr.obs)
    rows = Rows(obs, tr.action, tr.extras, value[:-1], advantage, tr.valid)
    if model.recurrent:
        rows = rows._replace(first=tr.first[:-1])
    rows = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)
    if model.recurrent:
        length = config.sequence
        starts = jax.tree.map(lambda x: jnp.swapaxes(x[:-1:length], 0, 1), carries)
        rows = jax.tree.map(lambda x: x.reshape(x.shape[0], -1, length, *x.shape[2:]), rows)
        rows = rows._replace(carry=starts)
    return rows, tr.valid.sum(0)


def absorb(config: Config, state: State, steps: Array) -> State:
    horizon = config.anneal_steps or 0
    return state._replace(
        steps=jnp.minimum(state.steps + steps.sum(), horizon), stopped=jnp.bool_(False)
    )


def loss(
    config: Config,
    model: nets.ActorCritic,
    dist: Distribution,
    params: Tree,
    weighed: tuple[Rows, Array],
) -> tuple[Array, dict[str, Array]]:
    """Of rows and their advantages, perhaps standardised; all are means over valid rows."""
    rows, advantage = weighed
    carry, rows = rows.carry, rows._replace(carry=())
    if model.recurrent:
        rows, advantage = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), (rows, advantage))
    (out, values), _ = model.unroll(params, carry, rows.obs, rows.first)
    out = pi(params, out, rows.obs)
    log_ratio = dist.log_prob(out, rows.action) - rows.log_prob
    ratio = jnp.exp(log_ratio)

    def mean(x: Array) -> Array:
        return ops.masked_mean(x, rows.valid)

    policy_loss = -mean(clipped_surrogate(ratio, advantage, config.clip))
    target = rows.value + rows.advantage
    critic_loss = mean(value_loss(values, rows.value, target, config.value_clip))
    entropy = mean(dist.entropy(out))
    total = policy_loss + config.value_cost * critic_loss - config.entropy_cost * entropy
    return total, {
        "loss/policy": policy_loss,
        "loss/value": critic_loss,
        "entropy": entropy,
        "kl": mean(ratio - 1 - log_ratio),  # never negative, unlike -log_ratio
        "clipped": mean((jnp.abs(ratio - 1) > config.clip).astype(jnp.float32)),
    }


def gradient(
    config: Config, weighed_loss: Loss, chunk: int | None, params: Tree, rows: Rows, key: Array
) -> Tree:
    """That of the loss, `chunk` rows at a time if it is a number."""
    del key
    advantage = rows.advantage
    if config.normalise_advantage:
        advantage = ops.standardise(advantage, rows.valid)
    if chunk is None:
        grads, metrics = jax.grad(weighed_loss, has_aux=True)(params, (rows, advantage))
    else:
        grads, metrics = ops.mean_grad(weighed_loss, chunk)(params, (rows, advantage), rows.valid)
    metrics["grad_norm"] = optax.tree.norm(grads)
    return (grads, metrics["kl"]), rows.valid.sum().astype(jnp.float32), (), metrics


def update(
    config: Config,
    optimiser: optax.GradientTransformation,
    state: State,
    grads_and_kl: tuple[Tree, Array],
) -> State:
    grads, kl = grads_and_kl
    horizon = config.anneal_steps
    left = (horizon - state.steps) / horizon if horizon else 1.0
    direction, opt_state = optimiser.update(grads, state.opt_state)
    params = jax.tree.map(lambda p, d: p - config.learning_rate * left * d, state.params, direction)
    if config.target_kl is None:
        return state._replace(params=params, opt_state=opt_state)
    stopped = state.stopped | (kl > 1.5 * config.target_kl)
    new, old = (params, opt_state), (state.params, state.opt_state)
    params, opt_state = jax.tree.map(lambda n, o: jnp.where(stopped, o, n), new, old)
    return state._replace(params=params, opt_state=opt_state, stopped=stopped)


def make(config: Config, spec: EnvSpec, network: Network | None = None) -> Algorithm:
    """PPO for an environment with discrete or continuous actions.

    `network` is one of the user's own, from observations to features.
    """
    dist = distributions.for_space(spec.action)
    continuous = isinstance(spec.action, Box)
    outputs = dist.size // 2 if continuous else dist.size
    model = network_for(config, spec, outputs, network)
    whole = model.recurrent or network is not None
    chunk = None if whole else nets.chunk_of(config.network, spec.observation)
    clip_norm = optax.clip_by_global_norm(config.max_grad_norm)
    optimiser = optax.flatten(optax.chain(clip_norm, optax.scale_by_adam(eps=1e-5)))
    stored_once = None if model.recurrent else spec.observation

    def init(key: Array) -> State:
        params = model.init(key)
        if continuous:
            params["log_std"] = jnp.full(outputs, config.log_std)
        return State(params, optimiser.init(params), jnp.int32(0), jnp.bool_(False))

    return Algorithm(
        init=init,
        acting=lambda state: state.params,
        learning=lambda state: state.params,
        absorb=partial(absorb, config),
        gradient=partial(gradient, config, partial(loss, config, model, dist), chunk),
        update=partial(update, config, optimiser),
        act=partial(act, model, dist),
        prepare=partial(prepare, config, model),
        carry=lambda lane: model.carry(lane.shape[0]),
        memory=rollout(config.epochs, config.minibatches, stored_once),
        rollout=config.rollout,
        max_lag=MAX_LAG,
    )
