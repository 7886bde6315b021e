"""Arithmetic that gives the same bits in every program.

XLA on CPUs may melt a product and a sum into one instruction, which rounds once instead of twice.
Whether it does depends on how it cuts a program into loops, and so on the number of lanes and on
what else the program computes (measured: in the last bit, MountainCar with fewer than four lanes
differed from more). A lane must go the same way in every plan, so sums are shielded from that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

P = ParamSpec("P")
R = TypeVar("R")

_LOWEST = float(np.finfo(np.float32).min)
_SUMS = ("add", "sub", "reduce_sum")
_CALLS = {  # by which name a call keeps the function that it calls
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}


def rounded(function: Callable[P, R]) -> Callable[P, R]:
    """The same function of arrays, where every term of a sum is rounded before it is added."""

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*args, **kwargs)
        results = _evaluate(closed, jax.tree.leaves((args, kwargs)))
        out: R = jax.tree.unflatten(jax.tree.structure(shape), results)
        return out

    return run


def _evaluate(closed: core.ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
    jaxpr = closed.jaxpr
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *args), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        inputs = [read(atom) for atom in equation.invars]
        if name in _CALLS:
            outputs = _evaluate(params[_CALLS[name]], inputs)
        else:
            inputs = [_shielded(term) for term in inputs] if name in _SUMS else inputs
            result = equation.primitive.bind(*inputs, **params)
            outputs = result if equation.primitive.multiple_results else [result]
        values |= dict(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _shielded(term: Any) -> Any:
    """The number itself, by way of an instruction that no product can be melted through."""
    if not jnp.issubdtype(term.dtype, jnp.floating):
        return term
    return jnp.maximum(term, _LOWEST)
