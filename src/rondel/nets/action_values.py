"""What each action is worth, from the features of a torso: [..., actions]."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from rondel.nets.mlp import Activation, forward, layers
from rondel.types import Array, Network, Tree


def action_values(torso: Network, width: int, actions: int) -> Network:
    """One layer behind a torso of that width."""

    def init(key: Array) -> Tree:
        k_torso, k_q = jax.random.split(key)
        return {"torso": torso.init(k_torso), "q": layers(k_q, (width, actions), 1.0)}

    def apply(params: Tree, obs: Tree) -> Array:
        return forward(params["q"], torso.apply(params["torso"], obs), jax.nn.relu)

    return Network(init, apply)


def dueling(
    torso: Network,
    width: int,
    actions: int,
    hidden: Sequence[int] = (),
    activation: Activation = jax.nn.relu,
) -> Network:
    """Q = V + A - mean A, with streams of their own for V and A behind a torso of that width.

    Wang et al., Dueling Network Architectures for Deep Reinforcement Learning, arXiv 1511.06581.
    `hidden` are the widths of the layers in each stream.

    >>> network = nets.dueling(*nets.torso("auto", spec.observation), spec.action.n, hidden=(128,))
    """

    def init(key: Array) -> Tree:
        k_torso, k_value, k_advantage = jax.random.split(key, 3)
        return {
            "torso": torso.init(k_torso),
            "value": layers(k_value, (width, *hidden, 1), 1.0),
            "advantage": layers(k_advantage, (width, *hidden, actions), 1.0),
        }

    def apply(params: Tree, obs: Tree) -> Array:
        x = torso.apply(params["torso"], obs)
        value = forward(params["value"], x, activation)
        advantage = forward(params["advantage"], x, activation)
        centred = advantage - jnp.mean(advantage, -1, keepdims=True)
        return centred + jnp.broadcast_to(value, centred.shape)

    return Network(init, apply)
