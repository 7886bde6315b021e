"""Replay: the cost of an add and a draw, at two sizes and against flashbax.

    python benchmarks/replay.py            # a minute or two; prints Markdown
    python benchmarks/replay.py --frames   # stacked frames: stored once, against whole
    python benchmarks/replay.py --figure flashbax draw      # one figure, rows per second

Each figure is the best of several runs of one fused, donated XLA program: rounds of one `add` and
K times (`draw`, a cheap stand-in for learning, `rank`). Both sizes should cost nearly the same,
except for caches and another level of the tree of priorities.
"""

from __future__ import annotations

import argparse
import functools
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rondel.memory.replay import Transitions, prioritised, uniform
from rondel.spaces import Box

LANES, LENGTH, DRAWS, BATCH, EXPONENT = 8, 8, 8, 64, 0.6


def best_of(run: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest of several runs."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def items(r: Any, shape: tuple[int, ...], dtype: Any) -> Transitions:
    number = jnp.zeros((LANES, LENGTH)) + r
    rows = LANES, LENGTH + 1, *shape
    obs = jnp.broadcast_to(jnp.asarray(r).astype(dtype), rows)
    if len(shape) == 3:  # a stack of frames, which go on from row to row
        row, frame, pixel = (lax.broadcasted_iota(jnp.int32, rows, i) for i in (1, 2, 4))
        obs = ((r * LENGTH + row + frame) * 7 + pixel).astype(dtype)
    one = jnp.ones((LANES, LENGTH), jnp.int32)
    return Transitions(obs, one, number, number, one, one > 0, 1.0 + number % 7)


def learn(obs: Any, next_obs: Any, learned: Any) -> tuple[Any, Any]:
    """Errors [n] that depend on all that was drawn."""
    seen = obs.reshape(len(obs), -1).astype(jnp.float32).sum(1)
    follows = next_obs.reshape(len(obs), -1).astype(jnp.float32).sum(1)
    return jnp.abs(seen - follows) % 3.0 + 1.0, learned + seen.sum()


def rondel(make: Callable[..., Any], capacity: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """(program, state) of rounds; program(state, rounds, draws)."""
    memory = make(capacity)

    def program(state: Any, rounds: Any, draws: Any) -> Any:
        def one_round(r: Any, carry: Any) -> Any:
            state, learned = carry

            def one_draw(j: Any, carry: Any) -> Any:
                state, learned = carry
                key = jax.random.fold_in(jax.random.key(1), r * DRAWS + j)
                batch, ticket = memory.draw(state, key, j)
                error, learned = learn(batch.obs, batch.next_obs, learned + batch.ratio.sum())
                return memory.rank(state, ticket, error), learned

            state = memory.add(state, items(r, shape, dtype), jax.random.key(0))
            return lax.fori_loop(0, draws, one_draw, (state, learned))

        return lax.fori_loop(0, rounds, one_round, (state, 0.0))

    return program, memory.init(items(0, shape, dtype), 1)


def flashbax(capacity: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """The same rounds over flashbax's prioritised buffer: LANES x LENGTH rows per add."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import flashbax as fbx
    buffer = fbx.make_prioritised_trajectory_buffer(
        add_batch_size=LANES,
        sample_batch_size=BATCH,
        sample_sequence_length=2,
        period=1,
        min_length_time_axis=2,
        max_length_time_axis=capacity // LANES,
        priority_exponent=EXPONENT,
        device="cpu",
    )

    def rows(r: Any) -> dict[str, Any]:
        new = items(r, shape, dtype)
        return {
            "obs": new.obs[:, :LENGTH],
            "action": new.action,
            "reward": new.reward,
            "discount": new.discount,
        }

    def program(state: Any, rounds: Any, draws: Any) -> Any:
        def one_round(r: Any, carry: Any) -> Any:
            state, learned = carry

            def one_draw(j: Any, carry: Any) -> Any:
                state, learned = carry
                key = jax.random.fold_in(jax.random.key(1), r * DRAWS + j)
                sample = buffer.sample(state, key)
                obs = sample.experience["obs"]
                learned = learned + sample.probabilities.sum()
                error, learned = learn(obs[:, 0], obs[:, 1], learned)
                return buffer.set_priorities(state, sample.indices, error), learned

            state = buffer.add(state, rows(r))
            return lax.fori_loop(0, draws, one_draw, (state, learned))

        return lax.fori_loop(0, rounds, one_round, (state, 0.0))

    return program, buffer.init(jax.tree.map(lambda x: x[0, 0], rows(0)))


def measure(case: Any, repeats: int, rounds: int = 50) -> tuple[float, float, float, int]:
    """Microseconds per add, per draw + rank; seconds to compile; bytes of scratch memory."""
    program, state = case
    began = time.perf_counter()
    compiled = jax.jit(program, donate_argnums=0).lower(state, 1, 1).compile()
    compiling = time.perf_counter() - began
    holder = [compiled(state, 200, 0)[0]]

    def run(draws: int) -> Callable[[], None]:
        def once() -> None:
            holder[0], learned = compiled(holder[0], rounds, draws)
            learned.block_until_ready()

        return once

    run(DRAWS)()
    add = best_of(run(0), repeats) / rounds
    both = best_of(run(DRAWS), repeats) / rounds
    scratch = compiled.memory_analysis().temp_size_in_bytes
    return add * 1e6, (both - add) / DRAWS * 1e6, compiling, scratch


def measure_frames(repeats: int, shape: tuple[int, ...] = (4, 84, 84)) -> None:
    """Stacks of four frames, stored once and whole, in turns."""
    low, high = np.zeros(shape, np.uint8), np.full(shape, 255, np.uint8)
    spaces = {"whole": None, "once": Box(low, high, "uint8", frames=shape[0])}
    rows = 20_000
    print(f"Stacks {list(shape)} of bytes, {rows:,} of them; an add is {LANES} x {LENGTH} rows.\n")
    print("| memory | batch | frames | us per add | us per draw | scratch kB | stored MB |")
    print("|---|---|---|---|---|---|---|")
    makes = {"uniform": uniform, "prioritised": functools.partial(prioritised, exponent=EXPONENT)}
    for name, make in makes.items():
        for batch in (32, 256):
            best: dict[str, tuple[float, ...]] = {}
            for _ in range(3):
                for how, space in spaces.items():
                    recipe = functools.partial(make, batch=batch, draws=DRAWS, space=space)
                    case = rondel(recipe, rows, shape, jnp.uint8)
                    held = sum(x.nbytes for x in jax.tree.leaves(case[1]))
                    add, draw, _, scratch = measure(case, repeats, rounds=10)
                    new = add, draw, scratch / 1e3, held / 1e6
                    best[how] = tuple(map(min, best.get(how, new), new))
            for how, (add, draw, scratch, held) in best.items():
                line = f"{add:.0f} | {draw:.0f} | {scratch:.0f} | {held:.0f}"
                print(f"| {name} | {batch} | {how} | {line} |", flush=True)


MAKES: dict[str, Callable[..., Any]] = {
    "uniform": lambda n: uniform(n, BATCH, DRAWS),
    "prioritised": lambda n: prioritised(n, BATCH, DRAWS, EXPONENT),
}


def figure(whose: str, what: str, repeats: int) -> float:
    """Rows per second of `add` or `draw` with 1,000,000 rows, of a memory of ours or flashbax."""
    small = (4,), jnp.float32
    if whose == "flashbax":
        case = flashbax(1_000_000, *small)
    else:
        case = rondel(MAKES[whose], 1_000_000, *small)
    add, draw, _, _ = measure(case, repeats)
    return 1e6 * (LANES * LENGTH / add if what == "add" else BATCH / draw)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--frames", action="store_true")
    parser.add_argument("--figure", nargs=2, metavar=("WHOSE", "WHAT"))
    arguments = parser.parse_args()
    repeats = arguments.repeats
    if arguments.frames:
        measure_frames(repeats)
        return
    if arguments.figure:
        print(figure(*arguments.figure, repeats))
        return
    small, image = ((4,), jnp.float32), ((84, 84), jnp.uint8)
    sizes = [(small, 10_000), (small, 1_000_000), (image, 2_000), (image, 100_000)]
    print(f"An add is {LANES} lanes x {LENGTH} rows, a draw {BATCH} rows (and its rank).\n")
    print("| memory | observation | rows | us per add | us per draw | compile s | scratch kB |")
    print("|---|---|---|---|---|---|---|")
    ours = (1.0, 1.0)
    for name, make in MAKES.items():
        for (shape, dtype), rows in sizes:
            add, draw, compiling, scratch = measure(rondel(make, rows, shape, dtype), repeats)
            if name == "prioritised" and rows == 1_000_000:
                ours = add, draw
            what = f"{jnp.dtype(dtype).name} {list(shape)}"
            line = f"{add:.1f} | {draw:.1f} | {compiling:.1f} | {scratch / 1e3:.0f}"
            print(f"| {name} | {what} | {rows:,} | {line} |", flush=True)
    add, draw, compiling, scratch = measure(flashbax(1_000_000, *small), repeats)
    line = f"{add:.1f} | {draw:.1f} | {compiling:.1f} | {scratch / 1e3:.0f}"
    print(f"| flashbax prioritised | float32 [4] | 1,000,000 | {line} |\n")
    rows = LANES * LENGTH
    print(
        f"At 1,000,000 rows against flashbax: adds {add / ours[0]:.1f} x "
        f"({rows / ours[0]:.2f}M against {rows / add:.2f}M items/s), draws {draw / ours[1]:.1f} x "
        f"({BATCH / ours[1]:.2f}M against {BATCH / draw:.2f}M items/s)."
    )


if __name__ == "__main__":
    main()
