"""What algorithms with a policy and a value have in common: networks, acting, rows, descent.

Policy and value are two perceptrons; behind an image, a memory or a network of the user's own they
share all but their last layers. Rows of a batch are [n, ...]; with a memory a row is a sequence
[L, ...].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import optax

from rondel.nets.actor_critic import ActorCritic, separate_networks, shared_torso
from rondel.nets.encode import mask_of
from rondel.nets.mlp import mlp
from rondel.nets.recurrent import make_cell
from rondel.nets.torso import choose_trunk, chunk_of, make_torso
from rondel.ops import distributions
from rondel.ops.chunks import mean_grad
from rondel.ops.distributions import Distribution
from rondel.ops.optimisers import packed
from rondel.ops.returns import gae
from rondel.spaces import Box
from rondel.types import Array, EnvSpec, Network, Trajectory, Tree

# (params, rows) -> (loss, metrics)
Loss: TypeAlias = Callable[[Tree, Tree], tuple[Array, dict[str, Array]]]


class Descent(Protocol):
    """What a `Config` says of descent."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def anneal_steps(self) -> int | None: ...


class Settings(Descent, Protocol):
    """What a `Config` says of networks and descent."""

    @property
    def hidden(self) -> tuple[int, ...]: ...
    @property
    def network(self) -> str: ...
    @property
    def log_std(self) -> float: ...


class State(NamedTuple):
    """The learner's; some algorithms have one with more."""

    params: Tree
    opt_state: Tree
    steps: Array  # environment steps so far, no further than the annealing needs


class Rows(NamedTuple):
    """Items [b, T, ...] on their way to memory, batches [n, ...] when they come back.

    With a memory: items [b, T / L, L, ...], batches [n, L, ...].
    """

    obs: Tree
    action: Array
    log_prob: Array  # of the action when it was taken
    value: Array  # of obs, as the acting weights saw it
    advantage: Array
    valid: Array
    first: Array | None = None  # where episodes begin; only with a memory, as the next one
    carry: Tree = ()  # [b, T / L, ...]: what was remembered before each sequence


def networks(
    config: Settings,
    spec: EnvSpec,
    own: Network | None = None,
    memory: str = "none",
    memory_size: int = 0,
) -> tuple[ActorCritic, Distribution]:
    """Policy and value for an environment, and how actions are distributed."""
    remembering = memory, memory_size
    dist = distributions.for_space(spec.action)
    if not isinstance(spec.action, Box):
        return network_for(config, spec, dist.size, own, *remembering), dist
    outputs = dist.size // 2  # the deviations are parameters of their own
    model = network_for(config, spec, outputs, own, *remembering)

    def init(key: Array) -> Tree:
        return model.init(key) | {"log_std": jnp.full(outputs, config.log_std)}

    return model._replace(init=init), dist


def network_for(
    config: Settings,
    spec: EnvSpec,
    outputs: int,
    own: Network | None,
    memory: str,
    memory_size: int,
) -> ActorCritic:
    """Two perceptrons where nothing asks for more."""
    kind = choose_trunk(config.network, spec.observation)
    if own is None and memory == "none" and kind == "mlp":
        policy = mlp(spec.observation, config.hidden, outputs, last_scale=0.01)
        return separate_networks(policy, mlp(spec.observation, config.hidden, 1))
    torso, width = make_torso(kind, spec.observation, config.hidden, own=own)
    cell = None if memory == "none" else make_cell(memory, width, memory_size)
    return shared_torso(torso, width, outputs, cell)


def chunk_for(
    config: Settings, spec: EnvSpec, model: ActorCritic, own: Network | None
) -> int | None:
    """How many rows at a time a gradient is made quickest on CPUs; None: all at once."""
    whole = model.recurrent or own is not None
    return None if whole else chunk_of(config.network, spec.observation)


def pi(params: Tree, out: Array, obs: Tree) -> Array:
    """The parameters of the actions' distribution, from what the network says."""
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
    """Rows with advantages, and how many steps there were."""
    (_, value), carries = model.unroll(params, tr.carry, tr.obs, tr.first)
    ends = tr.terminated, tr.truncated, tr.valid
    advantage = gae(tr.reward, value, *ends, discount, gae_lambda)
    obs = jax.tree.map(lambda x: x[:-1], tr.obs)
    rows = Rows(obs, tr.action, tr.extras, value[:-1], advantage, tr.valid)
    if model.recurrent:
        rows = rows._replace(first=tr.first[:-1])
    rows = turned(rows)
    if model.recurrent:
        starts = turned(jax.tree.map(lambda x: x[:-1:sequence], carries))
        rows = jax.tree.map(lambda x: x.reshape(x.shape[0], -1, sequence, *x.shape[2:]), rows)
        rows = rows._replace(carry=starts)
    return rows, tr.valid.sum(0)


def turned(tree: Tree) -> Tree:
    """From time first to lane by lane, and back."""
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)


def grad_of(
    loss: Loss, chunk: int | None, params: Tree, rows: Tree, valid: Array
) -> tuple[Tree, dict[str, Array]]:
    """The gradient of a mean over valid rows, on CPUs `chunk` at a time if it is a number."""
    if chunk is None or jax.default_backend() != "cpu":
        grads, metrics = jax.grad(loss, has_aux=True)(params, rows)
    else:
        grads, metrics = mean_grad(loss, chunk)(params, rows, valid)
    return grads, metrics | {"grad_norm": optax.tree.norm(grads)}


def count_steps(config: Descent, state: Tree, steps: Array) -> Tree:
    """The state after a round of so many environment steps [B]."""
    horizon = config.anneal_steps or 0
    return state._replace(steps=jnp.minimum(state.steps + steps.sum(), horizon))


def init(
    network_init: Callable[[Array], Tree], optimiser: optax.GradientTransformation, key: Array
) -> State:
    """The state before the first step."""
    params = network_init(key)
    return State(params, optimiser.init(params), jnp.int32(0))


def adam(max_grad_norm: float) -> optax.GradientTransformation:
    """Directions without a step size."""
    clip_norm = optax.clip_by_global_norm(max_grad_norm)
    return packed(optax.chain(clip_norm, optax.scale_by_adam(eps=1e-5)))


def descend(
    config: Descent, optimiser: optax.GradientTransformation, state: Tree, grads: Tree
) -> Tree:
    """The state after a step, whose size falls to 0 in a line if it is annealed."""
    horizon = config.anneal_steps
    left = (horizon - state.steps) / horizon if horizon else 1.0
    direction, opt_state = optimiser.update(grads, state.opt_state)
    params = jax.tree.map(lambda p, d: p - config.learning_rate * left * d, state.params, direction)
    return state._replace(params=params, opt_state=opt_state)
