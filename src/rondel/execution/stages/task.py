"""The task of a run, blocks of lanes, and trees: split by lane, counted in bytes, moved to JAX."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rondel.errors import RondelError
from rondel.execution.hostenv.partition import LaneShare
from rondel.execution.telemetry.timing import TimingReport
from rondel.types import Algorithm, Array, Env, HostWorld, Tree


class Task(NamedTuple):
    """One run, before it is cut into pieces."""

    algorithm: Algorithm
    env: Env | HostWorld
    seed: int
    lanes: int  # B
    block: int  # G: lanes act G at a time


def keeps_state(env: Env | HostWorld) -> TypeGuard[Env]:
    """Is an environment's state a tree of arrays, which a checkpoint can hold?"""
    return isinstance(env, Env) and env.pure


def map_blocks(f: Callable[..., Tree], block: int) -> Callable[..., Tree]:
    """`f(shared, *per_lane)` over lanes in blocks of `block`; per-lane trees are [b, ...].

    The shape of a matrix product changes the last bit of its rows. A fixed shape makes a lane's
    numbers independent of how many other lanes are in the same piece.
    """

    def apply(shared: Tree, *per_lane: Tree) -> Tree:
        lanes = jax.tree.leaves(per_lane)[0].shape[0]
        if lanes == block:
            return f(shared, *per_lane)
        grouped = jax.tree.map(lambda x: x.reshape(lanes // block, block, *x.shape[1:]), per_lane)
        out = lax.map(lambda group: f(shared, *group), grouped)
        return jax.tree.map(lambda x: x.reshape(lanes, *x.shape[2:]), out)

    return apply


def stage_boundary(tree: Tree) -> Tree:
    """What one stage passes to the next inside one program.

    Without this XLA may rearrange sums across the two, and a ring that is cut here would differ
    from one that is not.
    """
    return lax.optimization_barrier(tree)


def jit_computed_leaves(f: Callable[..., Tree]) -> Callable[..., Tree]:
    """`f` as a program, except for arrays that it passes through unchanged.

    A program takes longer to pass an array through than to add two small ones. Trees of one
    structure must have leaves of the same shapes and types in every call.
    """
    known: dict[Any, _Split] = {}

    def call(*args: Tree) -> Tree:
        leaves, structure = jax.tree.flatten(args)
        if structure not in known:
            known[structure] = _split(f, args, leaves)
        split = known[structure]
        new = iter(split.compute(*args) if None in split.through else ())
        made = [next(new) if i is None else leaves[i] for i in split.through]
        return jax.tree.unflatten(split.result, made)

    return call


class _Split(NamedTuple):
    """Which results a function passes through, and which it computes."""

    result: Any  # its structure
    through: list[int | None]  # which leaf of the arguments each leaf of the result is
    compute: Callable[..., list[Array]]  # the others


def _split(f: Callable[..., Tree], args: tuple[Tree, ...], leaves: list[Any]) -> _Split:
    traced, like = jax.make_jaxpr(f, return_shape=True)(*args)
    variables = zip(traced.jaxpr.invars, leaves, strict=True)
    given = {id(v): i for i, (v, leaf) in enumerate(variables) if isinstance(leaf, jax.Array)}
    through = [given.get(id(variable)) for variable in traced.jaxpr.outvars]

    def compute(*args: Tree) -> list[Array]:
        made = zip(jax.tree.leaves(f(*args)), through, strict=True)
        return [leaf for leaf, i in made if i is None]

    named = getattr(f, "func", f)  # of a partial
    compute.__name__ = getattr(named, "__name__", compute.__name__)  # in traces
    return _Split(jax.tree.structure(like), through, jax.jit(compute))


def to_device(tree: Tree) -> Tree:
    """Copy host arrays on their way into JAX.

    XLA may read host memory after the call has returned, when its owner has overwritten it.
    """

    def one(x: Any) -> Any:
        if isinstance(x, HostKey):
            return jax.random.wrap_key_data(jnp.array(x.data), impl=x.impl)
        return x if isinstance(x, TimingReport) else np.array(x, copy=True)

    return jax.tree.map(one, tree, is_leaf=lambda x: isinstance(x, HostKey))


class HostKey(NamedTuple):
    """A random key outside JAX."""

    data: Any
    impl: str


def on_host(tree: Tree) -> Tree:
    """A tree as NumPy arrays, which can leave the process; `to_device` brings it back."""

    def one(x: Any) -> Any:
        if isinstance(x, jax.Array) and _is_key(x):
            return HostKey(np.asarray(jax.random.key_data(x)), str(jax.random.key_impl(x)))
        return x if isinstance(x, TimingReport) else np.asarray(x)

    return jax.tree.map(one, tree)


def on_device(tree: Tree) -> Tree:
    """A tree as JAX arrays; unchanged if it has no others."""
    there = all(isinstance(x, jax.Array) for x in jax.tree.leaves(tree))
    return tree if there else jax.device_put(tree)


def without_keys(tree: Tree) -> Tree:
    """A tree with random keys as plain numbers, which can be saved."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, tree)


def with_keys(like: Tree, tree: Tree) -> Tree:
    """A tree of plain numbers, with keys where `like` has keys."""

    def one(like: Any, x: Any) -> Any:
        is_key = _is_key(like)
        return jax.random.wrap_key_data(x, impl=jax.random.key_impl(like)) if is_key else x

    return jax.tree.map(one, like, tree)


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def take_share(share: LaneShare, parts: tuple[Tree, ...]) -> Tree:
    """One copy's share of what several others made [b, ...]."""
    nth, of = share
    whole = concat_lanes(parts)
    if of == 1:
        return whole

    def cut(x: Any) -> Any:
        size = x.shape[0] // of
        return x[nth * size : (nth + 1) * size]

    return jax.tree.map(cut, whole)


def concat_lanes(trees: Any, axis: int = 0) -> Tree:
    """Concatenate trees of one structure along an axis."""

    def join(*xs: Any) -> Any:
        if all(isinstance(x, np.ndarray) for x in xs):
            return np.concatenate(xs, axis)
        return jnp.concatenate(xs, axis)

    return trees[0] if len(trees) == 1 else jax.tree.map(join, *trees)


def stack(trees: list[Any]) -> Any:
    """Stack trees of one structure along a new first axis, in new host memory."""
    return jax.tree.map(lambda *xs: np.stack(xs), *trees)


def bytes_of(tree: Tree) -> int:
    """The size of a tree of arrays, or of shapes and types."""
    leaves = jax.tree.leaves(jax.eval_shape(without_keys, tree))
    return sum(x.size * x.dtype.itemsize for x in leaves)


def check_fits_in_memory(
    held: int, what: str = "Memory", work: str = "a smaller capacity, rollout or number of lanes"
) -> None:
    """Refuse what takes more bytes than this machine has."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if held > there:
        raise RondelError(
            f"{what} would take {held / 2**30:.1f} GiB, but this machine has "
            f"{there / 2**30:.1f}. Use {work}."
        )
