"""Optimisers that cost little where there are many small parameters, or few large ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from rondel.types import Array, Tree

SMALL = 2**15  # numbers; larger arrays are faster alone (python benchmarks/optimiser.py)


def adam(max_grad_norm: float, epsilon: float = 1e-8) -> optax.GradientTransformation:
    """Adam's directions, without a step size, of gradients clipped to a norm."""
    clip_norm = optax.clip_by_global_norm(max_grad_norm)
    return packed(optax.chain(clip_norm, optax.scale_by_adam(eps=epsilon)))


def packed(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """`inner` over all small arrays as one, and over each large one by itself.

    XLA makes a loop of every array, and for the biases of small networks the loops would cost more
    than the work. A large array joined with others is slow on CPUs, since each element is then
    looked up. `inner` must treat all parameters alike.
    """

    def init(params: Tree) -> Tree:
        return inner.init(_pack(params))

    def update(grads: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]:
        like = None if params is None else _pack(params)
        direction, state = inner.update(_pack(grads), state, like)
        return _unpack(direction, grads), state

    return optax.GradientTransformation(init, update)


def _pack(tree: Tree) -> dict[str, Tree]:
    leaves = jax.tree.leaves(tree)
    small = [x.ravel() for x in leaves if x.size <= SMALL]
    large: list[Array] = [x for x in leaves if x.size > SMALL]
    return {"small": jnp.concatenate(small) if small else (), "large": large}


def _unpack(packed: dict[str, Tree], like: Tree) -> Tree:
    leaves, structure = jax.tree.flatten(like)
    large, start, out = iter(packed["large"]), 0, []
    for x in leaves:
        if x.size > SMALL:
            out.append(next(large))
            continue
        out.append(packed["small"][start : start + x.size].reshape(x.shape))
        start += x.size
    return jax.tree.unflatten(structure, out)
