"""The CPU time of a step of Adam by how its arrays are packed.

    python benchmarks/optimiser.py

`optax.flatten` makes one array of all parameters, `packed` one of the small ones.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from rondel.ops.optimisers import packed
from rondel.run.setup import jax_process

jax_process.configure_jax(0)
NATURE = [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64), (3136, 512), (512, 7)]
NETWORKS = {
    **{f"perceptron {w}x{w}": list(pairwise((4, w, w, 2))) for w in (64, 128, 256, 512)},
    "Nature CNN": NATURE,
}
WAYS = {"each by itself": lambda o: o, "optax.flatten": optax.flatten, "ops.packed": packed}


def microseconds(way: Any, shapes: list[tuple[int, ...]]) -> float:
    params = [part for s in shapes for part in (jnp.ones(s), jnp.ones(s[-1]))]
    adam = way(optax.chain(optax.clip_by_global_norm(10.0), optax.scale_by_adam()))

    def steps(params: Any, state: Any, n: Any) -> Any:
        def one(_: Any, loop: Any) -> Any:
            params, state = loop
            grads = lax.optimization_barrier(jax.tree.map(lambda x: 1e-3 * x, params))
            direction, state = adam.update(grads, state)
            return jax.tree.map(lambda p, d: p - 1e-3 * d, params, direction), state

        return lax.fori_loop(0, n, one, (params, state))

    run, state, n = jax.jit(steps), adam.init(params), 20
    jax.block_until_ready(run(params, state, 1))
    best = float("inf")
    for _ in range(10):
        began = time.process_time()
        jax.block_until_ready(run(params, state, n))
        best = min(best, time.process_time() - began)
    return best / n * 1e6


def main() -> None:
    print("| network | " + " | ".join(WAYS) + " |\n|---" + "|---" * len(WAYS) + "|")
    for name, shapes in NETWORKS.items():
        figures = [f"{microseconds(way, shapes):,.0f} us" for way in WAYS.values()]
        print(f"| {name} | " + " | ".join(figures) + " |", flush=True)


if __name__ == "__main__":
    main()
