"""How far rows of the scoreboard are from what nobody could do better: python benchmarks/limits.py

Two limits. By products: the least that an update takes is its matrix products, each alone in a
loop, in the library that XLA has for them, on as many threads as there are cores; what is between
them, such as activations and Adam, counts as nothing. The least that a step takes is that of its
environments alone, as Gymnasium has them; the policy's call counts as nothing.

In a bare loop: an update is the same networks and batch in a loop that does nothing but fit them to
given numbers with Adam, by the quickest product and optimiser that we have (`ops.product`,
`ops.packed`), and a step has a call of a compiled network that does nothing but choose the greatest
output. There is no advantage, no replay, no noise and no bookkeeping in it.

Ours and the peer's are those of benchmarks/results. Some 3 minutes; nobody else should be on the
machine.
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
import optax
from jax import lax

from rondel import ops
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
    bare: Bare | None = None  # not where the limit by products is reached


class Bare(NamedTuple):
    """What a bare loop fits."""

    batch: int
    networks: tuple[tuple[int, ...], ...]  # the sizes of each; the first one acts
    activation: Callable[[jax.Array], jax.Array]
    target: bool = False  # to what other networks say, not to 1


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
BOTH = ((4, 64, 64, 2), (4, 64, 64, 1))
PPO = [s for sizes in BOTH for s in (*forward(256, sizes), *weights(256, sizes))]
CARTPOLE = "gymnasium:CartPole-v1"
ROWS = {
    "host": Least(PPO, 20, CARTPOLE, 8, 32, "sb3_host", Bare(256, BOTH, jnp.tanh)),
    "DQN": Least(DQN, 1, CARTPOLE, 1, 1, "sbx_dqn", Bare(64, (VALUES,), jax.nn.relu, True)),
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


def weights_of(bare: Bare, seed: int) -> list[list[tuple[jax.Array, jax.Array]]]:
    """Weights and biases of each network."""
    rng = np.random.default_rng(seed)

    def layer(i: int, o: int) -> tuple[jax.Array, jax.Array]:
        return jnp.asarray(rng.normal(size=(i, o)) / i**0.5, jnp.float32), jnp.zeros(o)

    return [[layer(i, o) for i, o in pairwise(sizes)] for sizes in bare.networks]


def says(bare: Bare, params: Any, x: jax.Array) -> list[jax.Array]:
    """What each network says."""
    made = []
    for layers in params:
        y = x
        for nth, (w, b) in enumerate(layers):
            y = ops.product(bare.activation(y) if nth else y, w) + b
        made.append(y)
    return made


def fitting(bare: Bare) -> float:
    """Seconds of one update in a bare loop."""
    params, target = weights_of(bare, 0), weights_of(bare, 1)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(bare.batch, bare.networks[0][0])))
    optimiser = ops.packed(optax.adam(1e-3))

    def loss(params: Any, target: Any) -> jax.Array:
        wanted = says(bare, target, x) if bare.target else [jnp.float32(1.0)] * len(params)
        made = says(bare, params, x)
        return sum(jnp.mean((y - w) ** 2) for y, w in zip(made, wanted, strict=True))

    def one(_: int, state: Any) -> Any:
        params, kept, target = state
        moved, kept = optimiser.update(jax.grad(loss)(params, target), kept)
        return optax.apply_updates(params, moved), kept, lax.optimization_barrier(target)

    program = jax.jit(lambda state: lax.fori_loop(0, TIMES, one, state))
    state = program((params, optimiser.init(params), target))
    return best(lambda: jax.block_until_ready(program(state)), 2.0) / TIMES


def choosing(bare: Bare, lanes: int) -> float:
    """Seconds until the first network has chosen for all lanes, and the choice is in NumPy."""
    params = jax.device_put(weights_of(bare, 0))
    program = jax.jit(lambda params, obs: says(bare, params[:1], obs)[0].argmax(-1))
    obs = np.zeros((lanes, bare.networks[0][0]), np.float32)
    return best(lambda: [np.asarray(program(params, obs)) for _ in range(100)], 1.0) / 100


def row(name: str, least: Least) -> str:
    learn = least.updates * sum(n * product(s) for s, n in Counter(least.products).items())
    env = step(least.env, least.lanes)
    done = least.lanes * least.steps  # one update each, where the row counts updates
    found = json.loads((RESULTS / f"{name.lower()}.json").read_text())
    ours, theirs = (median(found["figures"][who]) for who in ("rondel", least.peer))
    cells = [f"{ours:,.0f} {found['unit']}", f"{ours / theirs:.2f}"]

    def limit(learn: float, act: float) -> list[str]:
        most = done / (learn + act)
        took = [f"{x / done * 1e6:,.0f} us" for x in (learn, act)]
        return [*took, f"{most:,.0f}", f"{ours / most:.0%}", f"{most / theirs:.2f}"]

    cells += limit(learn, least.steps * env)
    if (bare := least.bare) is not None:
        act = least.steps * (env + choosing(bare, least.lanes))
        cells += limit(least.updates * fitting(bare), act)
    else:
        cells += [""] * 5
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    each = "learning | acting | limit | ours of it | x peer there"
    print(f"| row | ours | x peer | products: {each} | bare loop: {each} |")
    print("|---" * 13 + "|")
    for name, least in ROWS.items():
        print(row(name, least), flush=True)


if __name__ == "__main__":
    main()
