"""What it costs to know where the time goes.

    python benchmarks/profile_cost.py

How many marks the copies of a run make in a second, times what a mark takes here, is the part of
their time that goes into marking.
"""

from __future__ import annotations

import time

import rondel
from rondel.execution.meter import Meter

RUNS = [  # algorithm, environment, plan, backend, steps
    ("ppo", "CartPole-v1", "all", "inline", 500_000),
    ("ppo", "gymnasium:CartPole-v1", "all", "inline", 60_000),
    ("ppo", "gymnasium:CartPole-v1", "actor*2 | learner", "processes", 60_000),
    ("ppo", "gymnasium:CartPole-v1", "env*2 | policy+learner", "processes", 40_000),
    ("dqn", "gymnasium:CartPole-v1", "all", "inline", 10_000),
    ("dqn", "CartPole-v1", "actor*2 | memory | gradient+update", "processes", 5_000),
]


def mark_seconds(times: int = 200_000) -> float:
    """What one mark takes."""
    meter = Meter()
    began = time.perf_counter()
    for _ in range(times):
        meter.mark("env", "simulator")
    return (time.perf_counter() - began) / times


def main() -> None:
    each = mark_seconds()
    print(f"A mark takes {each * 1e6:.2f} microseconds.\n")
    print("| run | on | marks a second of the busiest copy | part of its time |")
    print("|---|---|---|---|")
    for algorithm, env, plan, on, steps in RUNS:
        more = {} if plan == "all" else {"block": 4}
        with rondel.start(algorithm, env, steps=steps, plan=plan, on=on, **more) as run:
            for _ in run.rounds():
                pass
            seen = run.profile()
        marks = max(
            sum(share.times for share in piece.shares) / piece.copies for piece in seen.pieces
        )
        rate = marks / seen.seconds
        name = f"{algorithm} {env} `{plan}`".replace("|", "\\|")
        print(f"| {name} | {on} | {rate:,.0f} | {rate * each:.3%} |", flush=True)


if __name__ == "__main__":
    main()
