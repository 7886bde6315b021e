"""What algorithms with a policy and a value share: acting, rows with advantages, gradients.

Rows of a batch are [n, ...]; of a recurrent policy a row is a sequence [L, ...].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from rondel.nets.actor_critic import ActorCritic, pi
from rondel.ops.chunks import mean_grad
from rondel.ops.distributions import Distribution
from rondel.ops.returns import gae, swap_time
from rondel.ops.statistics import standardise
from rondel.types import Array, Trajectory, Tree

# (params, rows) -> (loss, metrics)
Loss: TypeAlias = Callable[[Tree, Tree], tuple[Array, dict[str, Array]]]


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


def gradient(
    normalise: bool, weighed_loss: Loss, chunk: int | None, params: Tree, rows: Rows, key: Array
) -> Tree:
    """The gradient of a loss of rows and their advantages, perhaps standardised."""
    del key
    advantage = rows.advantage
    if normalise:
        advantage = standardise(advantage, rows.valid)
    weighed = rows, advantage
    grads, metrics = grad_of(weighed_loss, chunk, params, weighed, rows.valid)
    return grads, rows.valid.sum().astype(jnp.float32), (), metrics
