"""The cost of the gradient of a layer's weights, by JAX and by `matrix_product`.

    python benchmarks/product.py

CPU time of one core. The floor is the layer itself, which multiplies as much.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from rondel.nets.mlp import matrix_product
from rondel.run.setup import jax_process

jax_process.configure_jax(0)
LAYERS = [(2048, 4, 64), (2048, 64, 64), (2048, 64, 2), (64, 256, 256), (64, 256, 2), (256, 256, 1)]
TIMES = 100


def microseconds(work: Callable[[Any, Any], Any], *args: Any) -> float:
    """Of a call, in a loop in which each depends on the one before."""

    def loop(*args: Any) -> Any:
        def one(_: Any, args: Any) -> Any:
            nudge = 1e-9 * work(*args).ravel()[0]
            return jax.tree.map(lambda x: x.at[0, 0].add(nudge), args)

        return lax.fori_loop(0, TIMES, one, args)

    run, best = jax.jit(loop), float("inf")
    jax.block_until_ready(run(*args))
    for _ in range(10):
        began = time.process_time()
        jax.block_until_ready(run(*args))
        best = min(best, time.process_time() - began)
    return best / TIMES * 1e6


def weight_gradient(multiply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def gradient(x: Any, grad: Any) -> Any:
        w = jnp.zeros((x.shape[-1], grad.shape[-1]))
        return jax.vjp(lambda w: multiply(x, w), w)[1](grad)[0]

    return gradient


def main() -> None:
    print("| rows | layer | layer itself | JAX | `ops.product` |\n|---|---|---|---|---|")
    for rows, inputs, outputs in LAYERS:
        shapes = (rows, inputs), (inputs, outputs), (rows, outputs)
        x, w, grad = map(jnp.ones, shapes)
        figures = [
            microseconds(jnp.matmul, x, w),
            microseconds(weight_gradient(jnp.matmul), x, grad),
            microseconds(weight_gradient(matrix_product), x, grad),
        ]
        told = " | ".join(f"{figure:.0f} us" for figure in figures)
        print(f"| {rows} | {inputs} to {outputs} | {told} |", flush=True)


if __name__ == "__main__":
    main()
