"""What algorithms with a policy and a value share: acting, rows with advantages, gradient steps.

Rows of a batch are [n, ...]; of a recurrent policy a row is a sequence [L, ...].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import optax

from rondel.nets.actor_critic import ActorCritic, make_actor_critic
from rondel.ops import distributions
from rondel.ops.chunks import mean_grad
from rondel.ops.distributions import Distribution
from rondel.ops.returns import gae, swap_time
from rondel.spaces import Box, mask_of
from rondel.types import Array, EnvSpec, Network, Trajectory, Tree

# (params, rows) -> (loss, metrics)
Loss: TypeAlias = Callable[[Tree, Tree], tuple[Array, dict[str, Array]]]


class Descent(Protocol):
    """The fields of a `Config` for gradient steps."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def anneal_steps(self) -> int | None: ...


class Settings(Descent, Protocol):
    """The fields of a `Config` for networks and gradient steps."""

    @property
    def hidden(self) -> tuple[int, ...]: ...
    @property
    def network(self) -> str: ...
    @property
    def log_std(self) -> float: ...


class State(NamedTuple):
    """The learner's state; some algorithms add to it."""

    params: Tree
    opt_state: Tree
    steps: Array  # environment steps so far, no further than the annealing needs


class Rows(NamedTuple):
    """Items [b, T, ...] for memory, batches [n, ...] from it.

    Of a recurrent policy: items [b, T / L, L, ...], batches [n, L, ...].
    """

    obs: Tree
    action: Array
    log_prob: Array  # of the action when it was taken
    value: Array  # of obs, by the acting weights
    advantage: Array
    valid: Array
    first: Array | None = None  # where episodes begin; only of a recurrent policy, as the next one
    carry: Tree = ()  # [b, T / L, ...]: before each sequence


def networks(
    config: Settings,
    spec: EnvSpec,
    own: Network | None = None,
    memory: str = "none",
    memory_size: int = 0,
) -> tuple[ActorCritic, Distribution]:
    """Policy and value for an environment, and the distribution of actions."""
    dist = distributions.for_space(spec.action)
    continuous = isinstance(spec.action, Box)
    outputs = dist.size // 2 if continuous else dist.size  # deviations are parameters of their own
    kind, hidden, space = config.network, config.hidden, spec.observation
    model = make_actor_critic(kind, space, hidden, outputs, own, memory, memory_size)
    if not continuous:
        return model, dist

    def init(key: Array) -> Tree:
        return model.init(key) | {"log_std": jnp.full(outputs, config.log_std)}

    return model._replace(init=init), dist


def pi(params: Tree, out: Array, obs: Tree) -> Array:
    """The parameters of the actions' distribution, from the policy's outputs."""
    if "log_std" in params:
        return jnp.concatenate([out, jnp.broadcast_to(params["log_std"], out.shape)], -1)
    return distributions.masked(out, mask_of(obs))


def act(
    model: ActorCritic,
    dist: Distribution,
    params: Tree,
    carry: Tree,
    obs: Tree,
    keys: Array,
    explore: bool,
) -> Tree:
    """An action, with the log of its probability."""
    carry, judged = model.step(params, carry, obs)
    out = pi(params, judged.policy, obs)
    action = dist.sample(out, keys) if explore else dist.mode(out)
    return action, carry, dist.log_prob(out, action)


def prepare(
    discount: float,
    gae_lambda: float,
    sequence: int,
    model: ActorCritic,
    params: Tree,
    tr: Trajectory,
) -> tuple[Rows, Array]:
    """Rows with advantages, and the number of steps."""
    (_, value), carries = model.unroll(params, tr.carry, tr.obs, tr.first)
    ends = tr.terminated, tr.truncated, tr.valid
    advantage = gae(tr.reward, value, *ends, discount, gae_lambda)
    obs = jax.tree.map(lambda x: x[:-1], tr.obs)
    rows = Rows(obs, tr.action, tr.extras, value[:-1], advantage, tr.valid)
    if not model.recurrent:
        return swap_time(rows), tr.valid.sum(0)
    rows = swap_time(rows._replace(first=tr.first[:-1]))
    rows = jax.tree.map(lambda x: x.reshape(x.shape[0], -1, sequence, *x.shape[2:]), rows)
    starts = swap_time(jax.tree.map(lambda x: x[:-1:sequence], carries))
    return rows._replace(carry=starts), tr.valid.sum(0)


def judge(model: ActorCritic, params: Tree, weighed: tuple[Rows, Array]) -> Tree:
    """Rows and their advantages, time first if the policy is recurrent; its outputs and values."""
    rows, advantage = weighed
    carry, rows = rows.carry, rows._replace(carry=())
    if model.recurrent:
        rows, advantage = swap_time((rows, advantage))
    (out, values), _ = model.unroll(params, carry, rows.obs, rows.first)
    return rows, advantage, pi(params, out, rows.obs), values


def grad_of(
    loss: Loss, chunk: int | None, params: Tree, rows: Tree, valid: Array
) -> tuple[Tree, dict[str, Array]]:
    """The gradient of a mean over valid rows, on CPUs `chunk` rows at a time if it is a number."""
    if chunk is None or jax.default_backend() != "cpu":
        grads, metrics = jax.grad(loss, has_aux=True)(params, rows)
    else:
        grads, metrics = mean_grad(loss, chunk)(params, rows, valid)
    return grads, metrics | {"grad_norm": optax.tree.norm(grads)}


def init(model: ActorCritic, optimiser: optax.GradientTransformation, key: Array) -> State:
    """The state before the first step."""
    params = model.init(key)
    return State(params, optimiser.init(params), jnp.int32(0))


def count_steps(config: Descent, state: Tree, steps: Array) -> Tree:
    """The state after a round of these environment steps [B]."""
    horizon = config.anneal_steps or 0
    return state._replace(steps=jnp.minimum(state.steps + steps.sum(), horizon))


def descend(
    config: Descent, optimiser: optax.GradientTransformation, state: Tree, grads: Tree
) -> Tree:
    """The state after a gradient step; an annealed step size falls to 0 linearly."""
    horizon = config.anneal_steps
    left = (horizon - state.steps) / horizon if horizon else 1.0
    direction, opt_state = optimiser.update(grads, state.opt_state)
    params = jax.tree.map(lambda p, d: p - config.learning_rate * left * d, state.params, direction)
    return state._replace(params=params, opt_state=opt_state)
