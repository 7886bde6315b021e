"""A policy and a value of the same observations, recurrent or not.

Shapes: b lanes, T rows of time, `[...]` any leading axes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from rondel.nets import images
from rondel.nets.mlp import forward, layers, mlp
from rondel.nets.recurrent import Cell, make_cell, unroll_cell
from rondel.nets.torso import choose_torso, make_torso
from rondel.ops import distributions
from rondel.ops.distributions import Distribution
from rondel.spaces import Box, mask_of
from rondel.types import Array, EnvSpec, Network, Tree


class Settings(Protocol):
    """The fields of a `Config` for a policy and a value."""

    @property
    def hidden(self) -> tuple[int, ...]: ...
    @property
    def network(self) -> str: ...
    @property
    def log_std(self) -> float: ...


class Judged(NamedTuple):
    """The outputs for an observation."""

    policy: Array  # [..., outputs]
    value: Array  # [...]


class ActorCritic(NamedTuple):
    """A policy and a value; the carry is the state of a recurrent network, else empty."""

    init: Callable[[Array], Tree]  # (key) -> params
    carry: Callable[[int], Tree]  # (b) -> carry, at an episode's beginning
    # (params, carry, obs [b, ...]) -> (carry, judged)
    step: Callable[[Tree, Tree, Tree], tuple[Tree, Judged]]
    # (params, carry before row 0, obs [T, b, ...], first [T, b]) -> (judged, carries [T, b, ...])
    unroll: Callable[[Tree, Tree, Tree, Any], tuple[Judged, Tree]]
    recurrent: bool = False
    chunk: int | None = None  # rows at a time that suit CPUs' caches for a gradient; None: all


def make_networks(
    config: Settings, spec: EnvSpec, own: Network | None = None
) -> tuple[ActorCritic, Distribution]:
    """Policy and value for an environment, and the distribution of actions.

    Two perceptrons; behind an image, a recurrent cell (the fields `memory` and `memory_size`, if
    there are any) or the user's `own` network a shared torso.
    """
    dist, space = distributions.for_space(spec.action), spec.observation
    continuous = isinstance(spec.action, Box)
    outputs = dist.size // 2 if continuous else dist.size  # deviations are parameters of their own
    kind, memory = choose_torso(config.network, space), getattr(config, "memory", "none")
    if own is None and memory == "none" and kind == "mlp":
        policy = mlp(space, config.hidden, outputs, last_scale=0.01)
        model = separate_networks(policy, mlp(space, config.hidden, 1))
    else:
        torso, width = make_torso(kind, space, config.hidden, own=own)
        recurrent = memory != "none"
        cell = make_cell(memory, width, getattr(config, "memory_size", 0)) if recurrent else None
        chunk = images.TRUNKS[kind].chunk if own is None and cell is None else None
        model = shared_torso(torso, width, outputs, cell)._replace(chunk=chunk)
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


def separate_networks(policy: Network, critic: Network) -> ActorCritic:
    """Two networks that share nothing. Rows of `unroll` may have any leading axes."""

    def init(key: Array) -> Tree:
        k_policy, k_critic = jax.random.split(key)
        return {"policy": policy.init(k_policy), "critic": critic.init(k_critic)}

    def judge(params: Tree, obs: Tree) -> Judged:
        value = critic.apply(params["critic"], obs)[..., 0]
        return Judged(policy.apply(params["policy"], obs), value)

    return _without_memory(init, judge)


def shared_torso(
    torso: Network, width: int, outputs: int, memory: Cell | None = None
) -> ActorCritic:
    """One torso of that width, perhaps a recurrent cell behind it, then a layer each."""
    inner = width if memory is None else memory.size

    def init(key: Array) -> Tree:
        k_torso, k_memory, k_policy, k_critic = jax.random.split(key, 4)
        heads = {
            "policy": layers(k_policy, (inner, outputs), 0.01),
            "critic": layers(k_critic, (inner, 1), 1.0),
        }
        remembered = {} if memory is None else {"memory": memory.init(k_memory)}
        return {"torso": torso.init(k_torso), **remembered, **heads}

    def judge(params: Tree, x: Array) -> Judged:
        policy, value = (forward(params[name], x, jnp.tanh) for name in ("policy", "critic"))
        return Judged(policy, value[..., 0])

    if memory is None:
        return _without_memory(
            init, lambda params, obs: judge(params, torso.apply(params["torso"], obs))
        )
    cell = memory

    def step(params: Tree, carry: Tree, obs: Tree) -> tuple[Tree, Judged]:
        carry, y = cell.step(params["memory"], carry, torso.apply(params["torso"], obs))
        return carry, judge(params, y)

    def unroll(params: Tree, carry: Tree, obs: Tree, first: Array) -> tuple[Judged, Tree]:
        seen = torso.apply(params["torso"], obs)  # all rows at once; only memory needs an order
        ys, carries = unroll_cell(
            lambda c, x: cell.step(params["memory"], c, x),
            cell.start(first.shape[1]),
            carry,
            seen,
            first,
        )
        return judge(params, ys), carries

    return ActorCritic(init, cell.start, step, unroll, recurrent=True)


def _without_memory(
    init: Callable[[Array], Tree], judge: Callable[[Tree, Tree], Judged]
) -> ActorCritic:
    def step(params: Tree, carry: Tree, obs: Tree) -> tuple[Tree, Judged]:
        return carry, judge(params, obs)

    def unroll(params: Tree, carry: Tree, obs: Tree, first: Array) -> tuple[Judged, Tree]:
        del first
        return judge(params, obs), carry

    return ActorCritic(init, lambda b: (), step, unroll)
