"""Rows in chunks: XLA's programs for CPUs are fastest on as many rows as caches hold.

`chunked` is for a network and any loss of all its outputs. `mean_grad` is for a loss that is a mean
over rows: faster for convolutions, since what a chunk's gradient needs is still in the cache
(benchmarks/conv.md). `chunked_sum` is for terms that would not fit into memory at once. `in_chunks`
is the opposite: one batch instead of many small ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from rondel.types import Array, Tree


def chunked(apply: Callable[[Tree, Tree], Tree], size: int) -> Callable[[Tree, Tree], Tree]:
    """`apply(params, rows [n, ...])` for at most `size` rows at a time, in a loop.

    For an `apply` that treats rows independently. There are as few chunks as possible, all of one
    size: rows of zeros fill up the last one, and their outputs are dropped.

    >>> outputs = chunked(network.apply, 32)(params, obs)
    """

    def apply_in_chunks(params: Tree, rows: Tree) -> Tree:
        n = jax.tree.leaves(rows)[0].shape[0]
        if n <= size:
            return apply(params, rows)
        out = jax.lax.map(partial(apply, params), _split(rows, n, size))
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:n], out)

    return apply_in_chunks


def in_chunks(apply: Callable[[Tree, Tree], Tree]) -> Callable[[Tree, Tree], Tree]:
    """`apply(params, rows [n, ...])`, which under `vmap` takes the rows of all lanes at once.

    For an `apply` that treats rows independently, and no gradients. A convolution mapped over lanes
    of one row each takes many times as long as one over all rows.

    >>> values = jax.vmap(partial(in_chunks(network.apply), params))(obs)  # [lanes, n, ...]
    """

    @jax.custom_batching.custom_vmap
    def asked(params: Tree, rows: Tree) -> Tree:
        return apply(params, rows)

    @asked.def_vmap
    def _(lanes: int, mapped: tuple[Tree, Tree], params: Tree, rows: Tree) -> tuple[Tree, Tree]:
        if any(jax.tree.leaves(mapped[0])) or not all(jax.tree.leaves(mapped[1])):
            axes = jax.tree.map(lambda x: 0 if x else None, tuple(mapped))
            out = jax.vmap(apply, axes, axis_size=lanes)(params, rows)
        else:
            flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
            out = apply(params, flat)
            out = jax.tree.map(lambda x: x.reshape(lanes, -1, *x.shape[1:]), out)
        return out, jax.tree.map(lambda _: True, out)

    return asked


def chunked_sum(sum_of: Callable[[Tree], Tree], size: int) -> Callable[[Tree], Tree]:
    """`sum_of(rows [n, ...])`, a sum over rows, for at most `size` at a time, in a loop.

    Rows of zeros fill up the last chunk: for these `sum_of` must be 0.

    >>> total = chunked_sum(lambda rows: rows.sum(0), 32)(rows)
    """

    def sum_in_chunks(rows: Tree) -> Tree:
        n = jax.tree.leaves(rows)[0].shape[0]
        if n <= size:
            return sum_of(rows)

        def add(total: Tree, some: Tree) -> tuple[Tree, None]:
            return jax.tree.map(jnp.add, total, sum_of(some)), None

        chunks = _split(rows, n, size)
        like = jax.eval_shape(sum_of, jax.tree.map(lambda x: x[0], chunks))
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
        return jax.lax.scan(add, nothing, chunks)[0]

    return sum_in_chunks


def mean_grad(
    loss: Callable[[Tree, Tree], tuple[Array, Tree]], size: int
) -> Callable[[Tree, Tree, Array], tuple[Tree, Tree]]:
    """`jax.grad(loss, has_aux=True)` for at most `size` rows at a time, in a loop.

    `loss(params, rows [n, ...]) -> (scalar, metrics)`, all of them means over valid rows. What else
    needs all rows, such as standardised advantages, must be computed before.

    >>> grads, metrics = mean_grad(loss, 32)(params, rows, rows.valid)
    """
    grad = jax.grad(loss, has_aux=True)

    def grad_in_chunks(params: Tree, rows: Tree, valid: Array) -> tuple[Tree, Tree]:
        if valid.shape[0] <= size:
            return grad(params, rows)
        share = 1.0 / jnp.maximum(valid.sum(), 1)

        def weighted(chunk: tuple[Tree, Array]) -> Tree:
            some, counted = chunk
            part = counted.sum() * share
            return jax.tree.map(lambda x: part * x, grad(params, some))

        return chunked_sum(weighted, size)((rows, valid))

    return grad_in_chunks


def _split(rows: Tree, n: int, size: int) -> Tree:
    """From [n, ...] to [chunks, at most size, ...], zeros at the end."""
    chunks = -(-n // size)
    each = -(-n // chunks)

    def split(x: Array) -> Array:
        if chunks * each > n:
            x = jnp.pad(x, [(0, chunks * each - n), *[(0, 0)] * (x.ndim - 1)])
        return x.reshape(chunks, each, *x.shape[1:])

    return jax.tree.map(split, rows)
