"""A policy of continuous actions and what judges them, each behind a torso of its own.

Actions are in units of -1..1: [..., actions].
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from rondel.nets.mlp import forward, layers
from rondel.ops.products import matrix_product
from rondel.types import Array, Network, Tree


def make_policy(torso: Network, width: int, outputs: int, hidden: Sequence[int]) -> Network:
    """From observations to [..., outputs], near 0 at first; rectifiers in the layers `hidden`.

    >>> network = nets.policy(*nets.torso("auto", spec.observation, ()), 2, hidden=(256, 256))
    """

    def init(key: Array) -> Tree:
        k_torso, k_policy = jax.random.split(key)
        sizes = (width, *hidden, outputs)
        return {"torso": torso.init(k_torso), "policy": layers(k_policy, sizes, 0.01)}

    def apply(params: Tree, obs: Tree) -> Array:
        return _rectified(params["policy"], torso.apply(params["torso"], obs))

    return Network(init, apply)


def make_critic(torso: Network, width: int, actions: int, hidden: Sequence[int]) -> Network:
    """From (obs, action) to what the action is worth, [...]: it joins the torso's features.

    For what is seen once k actions can be tried: [..., k, actions], which gives [..., k].
    """

    def init(key: Array) -> Tree:
        k_torso, k_q = jax.random.split(key)
        sizes = (width + actions, *hidden, 1)
        return {"torso": torso.init(k_torso), "q": layers(k_q, sizes, 1.0)}

    def apply(params: Tree, obs_and_action: tuple[Tree, Array]) -> Array:
        obs, action = obs_and_action
        seen = torso.apply(params["torso"], obs)
        if action.ndim > seen.ndim:
            seen = jnp.broadcast_to(seen[..., None, :], (*action.shape[:-1], width))
        seen = jnp.concatenate([seen, action], -1)
        return _rectified(params["q"], seen)[..., 0]

    return Network(init, apply)


def ensemble(network: Network, n: int) -> Network:
    """`n` networks of one kind that see the same, each for itself: outputs are [n, ...].

    Their parameters are stacked [n, ...], so that a layer of all of them is one product.
    """

    def init(key: Array) -> Tree:
        each = [network.init(k) for k in jax.random.split(key, n)]
        return jax.tree.map(lambda *xs: jnp.stack(xs), *each)

    def apply(params: Tree, seen: Tree) -> Array:
        return jax.vmap(network.apply, (0, None))(params, seen)

    return Network(init, apply)


def _rectified(params: Tree, x: Array) -> Array:
    """Through all layers, with rectifiers between them.

    The last bias is a row of the weights, for an input of 1. So its gradient is part of a product,
    and not a sum of its own: what a sum is fused with, and so its last bit, depends on what else is
    in the program.
    """
    *inner, last = params
    if inner:
        x = jax.nn.relu(forward(inner, x, jax.nn.relu))
    x = jnp.concatenate([x, jnp.ones((*x.shape[:-1], 1))], -1)
    return matrix_product(x, jnp.concatenate([last["w"], last["b"][None]]))
