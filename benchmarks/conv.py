"""Convolutional networks on the CPU: Rondel's against `lax.conv`.

    python benchmarks/conv.py --write           # some minutes; writes benchmarks/conv.md

Training is forward, backward and Adam on one minibatch, once in a call or several times in one
jitted `scan`, as in a round of Rondel. Both alternate in one process, under the XLA settings that
Rondel trains with. Each figure is the best of several, without compilation.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rondel.run.setup import jax_process

SETTINGS = jax_process.configure_jax()  # before JAX is used

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax import lax  # noqa: E402

from rondel.nets import images  # noqa: E402
from rondel.ops import random  # noqa: E402
from rondel.ops.chunks import mean_grad  # noqa: E402
from rondel.spaces import Box  # noqa: E402

SHAPE = (4, 84, 84)
SPACE = Box(np.zeros(SHAPE, np.uint8), np.full(SHAPE, 255, np.uint8), "uint8")


class Row(NamedTuple):
    what: str
    rows: int  # that one call takes
    calls: dict[str, Callable[[], Any]]  # by column


def conv(layer: Any, x: Any, stride: int, padding: str) -> Any:
    axes = ("NHWC", "HWIO", "NHWC")
    strides = (stride, stride)
    y = lax.conv_general_dilated(x, layer["w"], strides, padding, dimension_numbers=axes)
    return y + layer["b"]


def plain_nature(params: Any, obs: Any) -> Any:
    ((*layers, dense),) = params
    x = obs.transpose(0, 2, 3, 1).astype(jnp.float32) / 255
    for layer, stride in zip(layers, (4, 2, 1), strict=True):
        x = jax.nn.relu(conv(layer, x, stride, "VALID"))
    return jax.nn.relu(x.reshape(x.shape[0], -1) @ dense["w"] + dense["b"])


def plain_impala(params: Any, obs: Any) -> Any:
    relu = jax.nn.relu
    ((*layers, dense),) = params
    x = obs.transpose(0, 2, 3, 1).astype(jnp.float32) / 255
    while layers:
        begin, a, b, c, d, *layers = layers
        x = conv(begin, x, 1, "SAME")
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for one, two in ((a, b), (c, d)):
            x = x + conv(two, relu(conv(one, relu(x), 1, "SAME")), 1, "SAME")
    return relu(relu(x).reshape(x.shape[0], -1) @ dense["w"] + dense["b"])


def training(
    apply: Any, params: Any, batch: int, updates: int, chunk: int | None = None
) -> Callable[[], Any]:
    """A call that learns from `updates` minibatches, all in one program."""
    optimiser = optax.adam(1e-4)

    def loss(params: Any, obs: Any) -> Any:
        return jnp.mean(apply(params, obs) ** 2), ()

    def gradient(params: Any, obs: Any) -> Any:
        return mean_grad(loss, chunk or batch)(params, obs, jnp.ones(batch, bool))[0]

    def update(state: Any, obs: Any) -> Any:
        params, opt_state = state
        grads = gradient(params, obs)
        direction, opt_state = optimiser.update(grads, opt_state)
        return (optax.apply_updates(params, direction), opt_state), ()

    def learn(state: Any, obs: Any) -> Any:
        return update(state, obs[0])[0] if updates == 1 else lax.scan(update, state, obs)[0]

    state, obs = (params, optimiser.init(params)), pictures(updates, batch)
    program = jax.jit(learn)
    return lambda: program(state, obs)


def acting(apply: Any, params: Any, batch: int) -> Callable[[], Any]:
    obs, program = pictures(batch), jax.jit(apply)
    return lambda: program(params, obs)


def pictures(*batch: int) -> Any:
    return jnp.asarray(np.random.default_rng(0).integers(0, 256, (*batch, *SHAPE)), jnp.uint8)


def table() -> list[Row]:
    made = []
    networks = {"Nature CNN": ("nature", plain_nature, 256, 32)}
    networks["IMPALA ResNet"] = ("impala", plain_impala, 64, 8)
    for name, (kind, plain, batch, chunk) in networks.items():
        network, _ = images.network(SPACE, images.TRUNKS[kind])
        params = jax.jit(network.init)(random.key(0))
        for updates in (1, 3):
            how = "one call" if updates == 1 else f"{updates} in a scan"
            calls = {
                "mean_grad": training(network.apply, params, batch, updates, chunk),
                "ours": training(network.apply, params, batch, updates),
                "lax": training(plain, params, batch, updates),
            }
            made.append(Row(f"{name}, train, batch {batch}, {how}", batch * updates, calls))
        for n in (8, batch):
            calls = {"ours": acting(network.apply, params, n), "lax": acting(plain, params, n)}
            made.append(Row(f"{name}, forward, batch {n}", n, calls))
    return made


def measure(row: Row, repeats: int, clock: Callable[[], float]) -> dict[str, float]:
    """Samples a second, by column."""
    best = dict.fromkeys(row.calls, float("inf"))
    for turn in range(repeats + 1):
        for name, call in row.calls.items():
            if turn > 1 and best[name] > 5.0:
                continue  # nothing more to learn about it
            start = clock()
            jax.block_until_ready(call())
            if turn:  # the first one compiles
                best[name] = min(best[name], clock() - start)
    return {name: row.rows / seconds for name, seconds in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    parser.add_argument("--cpu-time", action="store_true", help="per second of CPU, all cores")
    parser.add_argument("--write", action="store_true", help="write conv.md beside this file")
    args = parser.parse_args()
    clock = time.process_time if args.cpu_time else time.perf_counter
    unit = "samples/s of CPU time" if args.cpu_time else "samples/s"
    lines = [
        f"| {unit} | ours, `mean_grad` | ours | `lax.conv` NHWC | best of ours / lax |",
        "|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for row in table():
        if args.only in row.what:
            found = measure(row, args.repeats, clock)
            ours = max(found["ours"], found.get("mean_grad", 0.0))
            with_mean = f"{found['mean_grad']:,.0f}" if "mean_grad" in found else ""
            line = f"{with_mean} | {found['ours']:,.0f} | {found['lax']:,.0f}"
            lines.append(f"| {row.what} | {line} | {ours / found['lax']:.1f} |")
            print(lines[-1], flush=True)
    if args.write:
        page = Path(__file__).with_suffix(".md")
        words = page.read_text().split("\nMachine: ")[0].rstrip()
        about = f"{platform.machine()}, JAX {jax.__version__}, `{SETTINGS}`"
        if args.cpu_time:
            about += (
                ". CPU time is that of all threads together: for a machine that others use\n"
                "too, where seconds on the wall say little; what a second thread gains is not in it"
            )
        page.write_text("\n".join([words, "", f"Machine: {about}.", "", *lines, ""]))


if __name__ == "__main__":
    main()
