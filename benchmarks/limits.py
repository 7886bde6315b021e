"""How far rows of the scoreboard are from two lower limits: python benchmarks/limits.py

Each limit is measured with one thread and with one for each core, and the faster counts.

Matrix products: an update takes at least the time of its products, each alone in a loop, in XLA's
library for them. Activations, Adam and all else count as nothing. A step takes at least the time of
Gymnasium's environments alone; the policy's call counts as nothing.

A bare loop: an update fits the same networks and batch to given numbers with Adam, by our fastest
product and optimiser (`matrix_product`, `packed`). A step also calls a compiled network that picks
the greatest output. There is no advantage, replay, noise or bookkeeping in it.

Our figures and the peers' are those of benchmarks/results. It takes about 1 minute, on an idle
machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from rondel.envs.registry import make
from rondel.nets.mlp import matrix_product
from rondel.ops.optimisers import packed
from rondel.run.setup import jax_process
from rondel.spaces import zeros

jax_process.configure_jax(float("inf"))
RESULTS = Path(__file__).parent / "results"
TIMES = 100  # that a product is made in one call
Shape = tuple[int, int, int]  # rows, what is summed over, columns
Network = Callable[[jax.Array], jax.Array]
Loss = Callable[[list[Network], list[Network], jax.Array], jax.Array]


class Least(NamedTuple):
    """The updates and environment steps that a unit of work needs."""

    products: list[Shape]
    updates: int
    env: str
    lanes: int
    steps: int  # that the lanes take for these updates
    peer: str
    bare: Bare


class Bare(NamedTuple):
    """The networks that a bare loop fits, and their loss."""

    batch: int
    networks: tuple[tuple[int, ...], ...]  # the sizes of each; the first one acts
    activation: Callable[[jax.Array], jax.Array]
    loss: Loss  # of the networks, others of the same sizes, and a batch


def forward(batch: int, sizes: tuple[int, ...]) -> list[Shape]:
    return [(batch, inputs, outputs) for inputs, outputs in pairwise(sizes)]


def weights(batch: int, sizes: tuple[int, ...]) -> list[Shape]:
    """The products of a gradient of the weights, which needs that of all inputs but the first."""
    return [*((i, batch, o) for i, o in pairwise(sizes)), *inputs(batch, sizes)[1:]]


def inputs(batch: int, sizes: tuple[int, ...]) -> list[Shape]:
    return [(batch, o, i) for i, o in pairwise(sizes)]


def ones(made: list[Network], others: list[Network], x: jax.Array) -> jax.Array:
    return sum(jnp.mean((says(x) - 1) ** 2) for says in made)


def values(made: list[Network], others: list[Network], x: jax.Array) -> jax.Array:
    return jnp.mean((made[0](x) - others[0](x)) ** 2)


def actor_and_critics(made: list[Network], others: list[Network], x: jax.Array) -> jax.Array:
    """SAC's update: the critics learn, and the actor learns from them."""
    actor, *critics = made

    def least(critics: list[Network], act: jax.Array) -> jax.Array:
        return jnp.minimum(*(q(jnp.concatenate([x, act], -1)) for q in critics))

    target = lax.stop_gradient(least(others[1:], actor(x)[:, :1]))
    fit = sum(jnp.mean((q(jnp.concatenate([x, x[:, :1]], -1)) - target) ** 2) for q in critics)
    return fit - jnp.mean(least(critics, actor(x)[:, :1]))


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
    "host": Least(PPO, 20, CARTPOLE, 8, 32, "sb3_host", Bare(256, BOTH, jnp.tanh, ones)),
    "DQN": Least(DQN, 1, CARTPOLE, 1, 1, "sbx_dqn", Bare(64, (VALUES,), jax.nn.relu, values)),
    "SAC": Least(
        SAC,
        1,
        "gymnasium:Pendulum-v1",
        1,
        1,
        "sbx_sac",
        Bare(256, (ACTOR, CRITIC, CRITIC), jax.nn.relu, actor_and_critics),
    ),
}


def best(call: Callable[[], Any], seconds: float) -> float:
    """Seconds of the fastest of as many calls as fit into a time."""
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
    """Seconds of one step of all lanes, without a policy."""
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


def networks(bare: Bare, params: Any) -> list[Network]:
    def says(layers: Any, y: jax.Array) -> jax.Array:
        for nth, (w, b) in enumerate(layers):
            y = matrix_product(bare.activation(y) if nth else y, w) + b
        return y

    return [partial(says, layers) for layers in params]


def fitting(bare: Bare) -> float:
    """Seconds of one update in a bare loop."""
    params, target = weights_of(bare, 0), weights_of(bare, 1)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(bare.batch, bare.networks[0][0])))
    optimiser = packed(optax.adam(1e-3))

    def loss(params: Any, target: Any) -> jax.Array:
        return bare.loss(networks(bare, params), networks(bare, target), x)

    def one(_: int, state: Any) -> Any:
        params, kept, target = state
        moved, kept = optimiser.update(jax.grad(loss)(params, target), kept)
        return optax.apply_updates(params, moved), kept, lax.optimization_barrier(target)

    program = jax.jit(lambda state: lax.fori_loop(0, TIMES, one, state))
    state = program((params, optimiser.init(params), target))
    return best(lambda: jax.block_until_ready(program(state)), 2.0) / TIMES


def choosing(bare: Bare, lanes: int) -> float:
    """Seconds to choose actions for all lanes with the first network, as NumPy arrays."""
    params = jax.device_put(weights_of(bare, 0))
    program = jax.jit(lambda params, obs: networks(bare, params)[0](obs).argmax(-1))
    obs = np.zeros((lanes, bare.networks[0][0]), np.float32)
    return best(lambda: [np.asarray(program(params, obs)) for _ in range(100)], 1.0) / 100


class Took(NamedTuple):
    """Seconds."""

    products: float  # of all updates
    env: float  # a step of all lanes
    fitting: float  # of all updates, and
    choosing: float  # for all lanes once, in a bare loop


def measure(least: Least) -> Took:
    products = sum(n * product(shape) for shape, n in Counter(least.products).items())
    bare = (least.updates * fitting(least.bare), choosing(least.bare, least.lanes))
    return Took(least.updates * products, step(least.env, least.lanes), *bare)


def fastest(name: str) -> Took:
    """The faster of one thread and one for each core, each in a process of its own."""
    tried = []
    for threads in (1, len(os.sched_getaffinity(0))):
        command = [sys.executable, __file__, "--measure", name]
        env = os.environ | {"NPROC": str(threads)}
        told = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
        tried.append(json.loads(told.stdout.splitlines()[-1]))
    return Took(*map(min, *tried))


def row(name: str) -> str:
    least, took = ROWS[name], fastest(name)
    done = least.lanes * least.steps  # one update each, where the row counts updates
    found = json.loads((RESULTS / f"{name.lower()}.json").read_text())
    ours, theirs = (median(found["figures"][who]) for who in ("rondel", least.peer))

    def limit(learn: float, act: float) -> list[str]:
        most = done / (learn + act)
        each = [f"{x / done * 1e6:,.0f} us" for x in (learn, act)]
        return [*each, f"{most:,.0f}", f"{ours / most:.0%}", f"{most / theirs:.2f}"]

    cells = [f"{ours:,.0f} {found['unit']}", f"{ours / theirs:.2f}"]
    cells += limit(took.products, least.steps * took.env)
    cells += limit(took.fitting, least.steps * (took.env + took.choosing))
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(ROWS[sys.argv[2]])))
        return
    each = "learning | acting | limit | ours of it | x peer there"
    print(f"| row | ours | x peer | products: {each} | bare loop: {each} |")
    print("|---" * 13 + "|")
    for name in ROWS:
        print(row(name), flush=True)


if __name__ == "__main__":
    main()
