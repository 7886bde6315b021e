"""The messages of a round in bytes: the routes of a lowered plan, with what they carry."""

from __future__ import annotations

import dataclasses

import jax

from rondel.execution.backends.lowering import Kind, Lowering, Route
from rondel.execution.stages.task import without_keys
from rondel.run.setup.shape_model import ShapeModel


@dataclasses.dataclass(frozen=True)
class Leaf:
    """An array of a tree."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclasses.dataclass(frozen=True)
class Message:
    """What copies of one stage send to copies of another: a message is one tree for one copy."""

    maker: str
    taker: str
    what: str
    leaves: tuple[Leaf, ...]  # of a message
    message_bytes: int
    messages: int  # in a round
    round_bytes: int


def messages_of(lowering: Lowering, shapes: ShapeModel) -> tuple[Message, ...]:
    """What leaves a copy in a round, in the order of the ring."""
    every = (_message(route, shapes) for route in lowering.routes)
    # inside one program nothing is exchanged for an empty tree
    keeps_empty = lowering.kind is not Kind.GRADIENT_PARALLEL
    return tuple(message for message in every if message.leaves or keeps_empty)


def _message(route: Route, shapes: ShapeModel) -> Message:
    tree = jax.eval_shape(without_keys, shapes.message(route.what))
    leaves = tuple(
        Leaf(
            jax.tree_util.keystr(path, simple=True, separator="/"),
            x.dtype.name,
            x.shape,
            x.size * x.dtype.itemsize,
        )
        for path, x in jax.tree_util.tree_flatten_with_path(tree)[0]
    )
    size = sum(leaf.bytes for leaf in leaves)
    maker, taker, what, messages = route
    return Message(maker, taker, what, leaves, size, messages, size * messages)
