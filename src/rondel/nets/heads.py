"""Heads behind a torso: values of discrete actions, policies and critics of continuous ones.

Values are [..., actions], or [..., actions, atoms] of their distributions. Continuous actions are
in units of -1..1: [..., actions].
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from rondel.nets.mlp import Activation, forward, layers, matrix_product
from rondel.nets.noisy import with_spread
from rondel.types import Array, Network, Tree


def value_head(
    torso: Network,
    width: int,
    actions: int,
    hidden: Sequence[int] = (),
    activation: Activation = jax.nn.relu,
    *,
    atoms: int | None = None,
    noise: float = 0.0,
) -> Network:
    """Action values: the layers `hidden` and a last one, behind a torso of that width.

    `noise` is the initial scale of noise in these layers (`nets.noisy`); 0: none.
    """

    def init(key: Array) -> Tree:
        k_torso, k_q = jax.random.split(key)
        sizes = (width, *hidden, actions * (atoms or 1))
        return {"torso": torso.init(k_torso), "q": _stream(k_q, sizes, noise)}

    def apply(params: Tree, obs: Tree) -> Array:
        out = forward(params["q"], torso.apply(params["torso"], obs), activation)
        return _by_atoms(out, atoms)

    return Network(init, apply)


def dueling_head(
    torso: Network,
    width: int,
    actions: int,
    hidden: Sequence[int] = (),
    activation: Activation = jax.nn.relu,
    *,
    atoms: int | None = None,
    noise: float = 0.0,
) -> Network:
    """Action values Q = V + A - mean A, with separate streams for V and A behind a torso.

    Wang et al., Dueling Network Architectures for Deep Reinforcement Learning, arXiv 1511.06581.
    `hidden` are the widths of the layers in each stream; `noise` is as in `value_head`.

    >>> network = dueling_head(*make_torso("auto", spec.observation), spec.action.n, hidden=(128,))
    """
    among_actions = -1 if atoms is None else -2

    def init(key: Array) -> Tree:
        k_torso, k_value, k_advantage = jax.random.split(key, 3)
        each = atoms or 1
        return {
            "torso": torso.init(k_torso),
            "value": _stream(k_value, (width, *hidden, each), noise),
            "advantage": _stream(k_advantage, (width, *hidden, actions * each), noise),
        }

    def apply(params: Tree, obs: Tree) -> Array:
        x = torso.apply(params["torso"], obs)
        value = _by_atoms(forward(params["value"], x, activation), atoms)
        advantage = _by_atoms(forward(params["advantage"], x, activation), atoms)
        centred = advantage - jnp.mean(advantage, among_actions, keepdims=True)
        return centred + jnp.broadcast_to(value, centred.shape)

    return Network(init, apply)


def _stream(key: Array, sizes: Sequence[int], noise: float) -> list[Tree]:
    stream = layers(key, sizes, 1.0)
    return with_spread(stream, noise) if noise else stream


def _by_atoms(out: Array, atoms: int | None) -> Array:
    return out if atoms is None else out.reshape(*out.shape[:-1], -1, atoms)


def make_policy(torso: Network, width: int, outputs: int, hidden: Sequence[int]) -> Network:
    """A policy: from observations to [..., outputs], near 0 at first; rectified layers `hidden`.

    >>> network = make_policy(*make_torso("auto", spec.observation, ()), 2, hidden=(256, 256))
    """

    def init(key: Array) -> Tree:
        k_torso, k_policy = jax.random.split(key)
        sizes = (width, *hidden, outputs)
        return {"torso": torso.init(k_torso), "policy": layers(k_policy, sizes, 0.01)}

    def apply(params: Tree, obs: Tree) -> Array:
        return _rectified(params["policy"], torso.apply(params["torso"], obs))

    return Network(init, apply)


def make_critic(torso: Network, width: int, actions: int, hidden: Sequence[int]) -> Network:
    """A critic: from (obs, action) to the action's value [...]. Actions join the torso's features.

    It can also value k actions for each observation: [..., k, actions] give [..., k].
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
    """`n` networks of one kind with the same inputs: outputs are [n, ...].

    Their parameters are stacked [n, ...], so that a layer of all of them is one product.
    """

    def init(key: Array) -> Tree:
        each = [network.init(k) for k in jax.random.split(key, n)]
        return jax.tree.map(lambda *xs: jnp.stack(xs), *each)

    def apply(params: Tree, seen: Tree) -> Array:
        return jax.vmap(network.apply, (0, None))(params, seen)

    return Network(init, apply)


def _rectified(params: Tree, x: Array) -> Array:
    """Apply all layers, with rectifiers between them.

    The last bias is a row of the weights, for an input of 1. So its gradient is part of a product,
    and not a sum of its own: what a sum is fused with, and so its last bit, depends on what else is
    in the program.
    """
    *inner, last = params
    if inner:
        x = jax.nn.relu(forward(inner, x, jax.nn.relu))
    x = jnp.concatenate([x, jnp.ones((*x.shape[:-1], 1))], -1)
    return matrix_product(x, jnp.concatenate([last["w"], last["b"][None]]))
