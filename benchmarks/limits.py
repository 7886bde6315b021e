"""How far rows of the scoreboard are from what nobody could do better: python benchmarks/limits.py

The least that an update takes is its matrix products, each alone in a loop, in the library that XLA
has for them, on as many threads as there are cores; what is between them, such as activations and
Adam, counts as nothing. The least that a step takes is that of its environments alone, as
Gymnasium has them; the policy's call counts as nothing. Ours and the peer's are those of
benchmarks/results. Some 2 minutes; nobody else should be on the machine.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rondel.envs import make
from rondel.run import machine
from rondel.spaces import zeros

machine.settle(float("inf"))
RESULTS = Path(__file__).parent / "results"
TIMES = 100  # that a product is made in one call
Shape = tuple[int, int, int]  # rows, what is summed over, columns


class Least(NamedTuple):
    """What a unit of work needs: updates and steps of environments."""

    products: list[Shape]
    updates: int
    env: str
    lanes: int
    steps: int  # that the lanes take for these updates
    peer: str


def forward(batch: int, sizes: tuple[int, ...]) -> list[Shape]:
    return [(batch, inputs, outputs) for inputs, outputs in pairwise(sizes)]


def weights(batch: int, sizes: tuple[int, ...]) -> list[Shape]:
    """The gradient of the weights, for which that of all layers' inputs but the first is needed."""
    return [*((i, batch, o) for i, o in pairwise(sizes)), *inputs(batch, sizes)[1:]]


def inputs(batch: int, sizes: tuple[int, ...]) -> list[Shape]:
    return [(batch, o, i) for i, o in pairwise(sizes)]


VALUES, ACTOR, CRITIC = (4, 256, 256, 2), (3, 256, 256, 2), (4, 256, 256, 1)
DQN = 2 * forward(64, VALUES) + weights(64, VALUES)
SAC = [
    *(2 * forward(256, ACTOR) + weights(256, ACTOR)),  # what to do next; and what it should do
    *(2 * forward(256, CRITIC)),  # two targets
    *(2 * (forward(256, CRITIC) + weights(256, CRITIC))),
    *(2 * (forward(256, CRITIC) + inputs(256, CRITIC))),  # what the policy is told of them
]
PPO = [s for n in (2, 1) for s in (*forward(256, (4, 64, 64, n)), *weights(256, (4, 64, 64, n)))]
ROWS = {
    "host": Least(PPO, 20, "gymnasium:CartPole-v1", 8, 32, "sb3_host"),
    "DQN": Least(DQN, 1, "gymnasium:CartPole-v1", 1, 1, "sbx_dqn"),
    "SAC": Least(SAC, 1, "gymnasium:Pendulum-v1", 1, 1, "sbx_sac"),
}


def best(call: Callable[[], Any], seconds: float) -> float:
    """The best of as many times as fit."""
    found, end = float("inf"), time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        call()
        found = min(found, time.perf_counter() - began)
    return found


def product(shape: Shape) -> float:
    """Seconds of one product."""
    rows, _, columns = shape
    rng = np.random.default_rng(0)
    x, w = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in (shape[:2], shape[1:]))

    def again(x: jax.Array, w: jax.Array) -> jax.Array:
        def one(_: int, kept: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            x, w, _ = kept
            return lax.optimization_barrier((x, w, x @ w))

        return lax.fori_loop(0, TIMES, one, (x, w, jnp.zeros((rows, columns))))[2]

    program = jax.jit(again)
    jax.block_until_ready(program(x, w))
    return best(lambda: jax.block_until_ready(program(x, w)), 0.5) / TIMES


def step(env_id: str, lanes: int) -> float:
    """Seconds of one step of all lanes, with nobody acting."""
    world = make(env_id)
    env = world.make(lanes, 0)
    env.reset(np.arange(lanes))
    action = zeros(world.spec.action, lanes)
    try:
        return best(lambda: [env.step(action) for _ in range(100)], 2.0) / 100
    finally:
        env.close()


def row(name: str, least: Least) -> str:
    learn = least.updates * sum(n * product(s) for s, n in Counter(least.products).items())
    act = least.steps * step(least.env, least.lanes)
    done = least.lanes * least.steps  # one update each, where the row counts updates
    found = json.loads((RESULTS / f"{name.lower()}.json").read_text())
    ours, theirs = (median(found["figures"][who]) for who in ("rondel", least.peer))
    limit = done / (learn + act)
    cells = [f"{x / done * 1e6:,.0f} us" for x in (learn, act)]
    cells += [f"{limit:,.0f} {found['unit']}", f"{ours:,.0f}", f"{ours / limit:.0%}"]
    return f"| {name} | {' | '.join(cells)} | {ours / theirs:.2f} | {limit / theirs:.2f} |"


def main() -> None:
    print("| row | products | environments | limit | ours | of it | times peer | at the limit |")
    print("|---|---|---|---|---|---|---|---|")
    for name, least in ROWS.items():
        print(row(name, least), flush=True)


if __name__ == "__main__":
    main()
