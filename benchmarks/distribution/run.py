"""What distribution gains and costs: plans and backends side by side, in one run.

    python benchmarks/distribution/run.py                    all tables, printed
    python benchmarks/distribution/run.py sleepy --write     one of them, written to results.md

Tables: `sleepy` (an environment that sleeps 2 ms per step, 16 lanes a copy), `sleepy-eight` and
`sleepy-one` (8 lanes, one lane a copy), `cartpole` (the cost of cutting), `wire` (one round trip).
Only ratios count: the cores are shared and noisy. Speed is measured after a few rounds, without
compilation. For peers see benchmarks/scoreboard/actors.py, which gets our figures from here, one at
a time (`--figure`).
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from pathlib import Path
from typing import Any

from sleepy import Sleepy

import rondel
from rondel.plan.parser import parse
from rondel.run.session.run import create_backend
from rondel.run.setup.prepare import prepare

HERE = Path(__file__).parent
SMALL = {"hidden": (16, 16), "epochs": 1, "minibatches": 1, "tuned": False}


def steps_per_second(seconds: float, *request: Any, **fields: Any) -> float:
    """The speed of a run after its first rounds."""
    with rondel.start(*request, steps=10**9, **fields) as run:
        reports = run.rounds()
        for _ in range(3):
            next(reports)
        began, before = time.monotonic(), run.steps
        while time.monotonic() - began < seconds:
            next(reports)
        return (run.steps - before) / (time.monotonic() - began)


def sleepy(seconds: float) -> list[str]:
    """`actor*16 | learner` against `actor*1`, and central inference, with 16 lanes a copy."""
    return _sleepy(16, seconds, repeats=3)


def sleepy_eight(seconds: float) -> list[str]:
    """`actor*16 | learner` against `actor*1`, with 8 lanes a copy."""
    return _sleepy(8, seconds, repeats=3)


def sleepy_one(seconds: float) -> list[str]:
    """`actor*16 | learner` against `actor*1`, with one lane a copy."""
    return _sleepy(1, seconds, repeats=1)


def _sleepy(each: int, seconds: float, repeats: int) -> list[str]:
    """Plans that alternate; each ratio is to `actor*1` in the same turn."""
    lanes = {
        "actor | learner": each,
        "actor*16 | learner": 16 * each,
        "env*16 | policy+learner": max(16 * each, 32),
    }
    rows = ["| plan | on | steps/s, median | of 16 × one, median | of each turn |"]
    rows.append("|---|---|---|---|---|")
    for on in ("processes", "ray"):
        turns: list[dict[str, float]] = []
        for _ in range(repeats):
            turns.append({})
            for plan, b in lanes.items():
                fields = {"lanes": b, "block": each, "rollout": 64, **SMALL}
                speed = steps_per_second(seconds, "ppo", Sleepy, plan=plan, on=on, **fields)
                turns[-1][plan] = speed
                print(on, plan, f"{speed:,.0f} steps/s", flush=True)
        for plan in lanes:
            speed = statistics.median(turn[plan] for turn in turns)
            shares = [turn[plan] / turn["actor | learner"] / 16 for turn in turns]
            told = ", ".join(f"{share:.2f}" for share in shares)
            median = statistics.median(shares)
            rows.append(f"| `{cell(plan)}` | {on} | {speed:,.0f} | {median:.2f} | {told} |")
    return rows


def cartpole(seconds: float) -> list[str]:
    """The cost of a cut, and the gain of a lag of one round."""
    rows = ["| env | plan | on | steps/s | of `all` |", "|---|---|---|---|---|"]
    for env in ("jax:CartPole-v1", "gymnasium:CartPole-v1"):
        fields = {"lanes": 16, "rollout": 64, "updates": 64, "tuned": False, "warmup": 0}
        whole = steps_per_second(seconds, "dqn", env, **fields)
        rows.append(f"| {env} | `all` | inline | {whole:,.0f} | 1.00 |")
        for on in ("inline", "threads", "processes", "ray"):
            for lag in (0, 1):
                plan = "actor | learner"
                speed = steps_per_second(seconds, "dqn", env, plan=plan, on=on, lag=lag, **fields)
                told = f"`{cell(plan)}`" + (f", lag {lag}" if lag else "")
                rows.append(f"| {env} | {told} | {on} | {speed:,.0f} | {speed / whole:.2f} |")
    return rows


def wire(_: float) -> list[str]:
    """The time of one call and its reply, both almost empty."""
    rows = ["| on | µs, median | µs, best tenth |", "|---|---|---|"]
    for on in ("inline", "threads", "processes", "ray"):
        fields = {"plan": "actor | learner", "on": on, "hidden": (8,)}
        setup = prepare("dqn", "CartPole-v1", fields=fields)
        backend = create_backend(setup)
        try:
            learner = backend.launch(setup.task, parse("actor | learner"))[1][0]
            trips = [round_trip(backend, learner) for _ in range(1000)]
        finally:
            backend.close()
        trips = sorted(trips[100:])
        best = statistics.mean(trips[: len(trips) // 10])
        rows.append(f"| {on} | {statistics.median(trips):.0f} | {best:.0f} |")
    return rows


def round_trip(backend: Any, copy: Any) -> float:
    """Microseconds of a call with an empty reply."""
    began = time.perf_counter()
    backend.get([copy.snapshot("nothing")])
    return (time.perf_counter() - began) * 1e6


def figure(algorithm: str, on: str, env: str, actors: str, seconds: str) -> float:
    """Steps per second with a number of actors of 8 lanes; IMPALA's don't wait for the learner."""
    n, ahead = int(actors), algorithm == "impala"
    envs = {"cheap": "gymnasium:CartPole-v1", "slow": Sleepy}
    where = {"plan": f"actor*{n} | learner", "on": on, "lag": int(ahead), "free": ahead}
    sizes = {"lanes": 8 * n, "block": 8, "rollout": 64, **SMALL, "hidden": (64, 64)}
    return steps_per_second(float(seconds), algorithm, envs[env], **where, **sizes)


def cell(plan: str) -> str:
    return plan.replace("|", "\\|")


TABLES = {
    "sleepy": sleepy,
    "sleepy-eight": sleepy_eight,
    "sleepy-one": sleepy_one,
    "cartpole": cartpole,
    "wire": wire,
}


def write(name: str, lines: list[str]) -> None:
    """Replace the table of that name."""
    path = HERE / "results.md"
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    text = path.read_text()
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    path.write_text(before + "\n".join([begin, *lines, end]) + after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []], help="all, if none is named")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each is measured")
    parser.add_argument("--write", action="store_true", help="write the tables to results.md")
    told = "ALGORITHM", "ON", "ENV", "ACTORS", "SECONDS"
    parser.add_argument("--figure", nargs=5, metavar=told, help="print this one, and no table")
    args = parser.parse_args()
    if args.figure:
        print(figure(*args.figure))
        return
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    rondel.start("ppo", "CartPole-v1").close()  # settles JAX before anything is measured
    for name in args.tables or TABLES:
        lines = TABLES[name](args.seconds)
        print("", *lines, sep="\n", flush=True)
        if args.write:
            write(name, lines)


if __name__ == "__main__":
    main()
