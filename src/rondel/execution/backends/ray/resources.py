"""Resources that the copies of a plan ask for, and that a cluster lacks. It needs no Ray."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from rondel.errors import RondelError
from rondel.formatting import join_words
from rondel.plan.plan import Plan

Bundle: TypeAlias = dict[str, float]  # what a copy asks for, by Ray's names

_RAYS_NAMES = {"cpu": "CPU", "gpu": "GPU"}  # others are the same


def bundles_of(plan: Plan, resources: Sequence[Mapping[str, float]] | None) -> list[list[Bundle]]:
    """The resources of every copy of every piece, without those of 0."""
    if resources is None:
        resources = [{} for _ in plan.pieces]
    if len(resources) != len(plan.pieces):
        raise RondelError(
            f"resources must have one mapping, such as {{'cpu': 1}}, for each of the "
            f"{len(plan.pieces)} pieces of `{plan}`, got {len(resources)}."
        )
    pieces = []
    for piece, given in zip(plan.pieces, resources, strict=True):
        if bad := [f"{name}={amount}" for name, amount in given.items() if not amount >= 0]:
            raise RondelError(f"resources must be 0 or more, got {bad[0]} for {piece.name}.")
        wanted = {_RAYS_NAMES.get(k, k): v for k, v in ({"cpu": 1} | dict(given)).items()}
        bundle = {k: int(v) if k == "memory" else float(v) for k, v in wanted.items() if v}
        pieces.append([bundle] * piece.copies)
    return pieces


def missing(
    plan: Plan, bundles: Sequence[Sequence[Bundle]], nodes: Sequence[Mapping[str, float]]
) -> str | None:
    """The sentence for resources that a plan asks for and a cluster of these nodes lacks."""
    asked, there = total([b for piece in bundles for b in piece]), total(nodes)
    short = {name: there.get(name, 0.0) for name in asked if asked[name] > there.get(name, 0.0)}
    absent = [name for name in short if not short[name]]
    if absent:  # fewer copies would not help: one is too many
        kinds = join_words(absent, "and")
        return (
            f"`{plan}` asks for {amounts({name: asked[name] for name in absent})}, and the cluster "
            f"has no {kinds} at all. Ask for none of it, or add nodes that have some."
        )
    way = "Use fewer copies, more nodes, or smaller --resources (cpu=0 shares cores)."
    if short:
        wants = amounts({name: asked[name] for name in short})
        return f"`{plan}` asks for {wants}, and the cluster has {amounts(short)}. {way}"
    for piece, (bundle, *_) in zip(plan.pieces, bundles, strict=True):
        if not any(all(node.get(k, 0.0) >= v for k, v in bundle.items()) for node in nodes):
            most = {k: max(node.get(k, 0.0) for node in nodes) for k in bundle}
            return (
                f"A copy of {piece.name} asks for {amounts(bundle)}, and no node has that; the "
                f"most that one has is {amounts(most)}. {way}"
            )
    return None


def total(several: Sequence[Mapping[str, float]]) -> Bundle:
    names = dict.fromkeys(name for each in several for name in each)
    return {name: sum(each.get(name, 0.0) for each in several) for name in names}


def amounts(each: Mapping[str, float]) -> str:
    parts = []
    for name, amount in each.items():
        in_bytes = name == "memory"
        parts.append(f"{amount / 2**30:.3g} GiB of memory" if in_bytes else f"{amount:g} {name}")
    return ", ".join(parts)


def refuse_if_nobody_listens(address: str) -> None:
    """Refuse at once an address that Ray itself would try for more than a minute."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in host or not port.isdigit():
        return  # "local", "auto", "ray://…"
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
    except (OSError, OverflowError) as error:
        raise RondelError(f"There is no Ray at {address}: {error}.") from error
