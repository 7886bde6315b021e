"""What each action is worth, from the features of a torso: [..., actions].

With `atoms` an action has so many numbers, which tell of the distribution of its return:
[..., actions, atoms]. With `noise` the layers behind the torso are noisy ones, as in `nets.noisy`,
whose spread begins at that scale.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from rondel.nets.mlp import Activation, forward, layers
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
    """One layer behind a torso of that width, and before it those of widths `hidden`."""

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
    """Q = V + A - mean A, with streams of their own for V and A behind a torso of that width.

    Wang et al., Dueling Network Architectures for Deep Reinforcement Learning, arXiv 1511.06581.
    `hidden` are the widths of the layers in each stream.

    >>> network = nets.dueling(*nets.torso("auto", spec.observation), spec.action.n, hidden=(128,))
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
