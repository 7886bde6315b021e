"""Does a step cost more late in a run than early, and does the process grow?

    python benchmarks/length.py --write    all runs, written to benchmarks/length.md
    python benchmarks/length.py dqn        one of them

A run is split into tenths of its steps. Each has the CPU time of a step and the memory at its end,
both of this process and all that it started. The first tenth compiles and fills what has a fixed
size, so growth counts from the second one on.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

import rondel

PAGE = Path(__file__).with_suffix(".md")
STEPS = 1_000_000
RUNS: dict[str, dict[str, Any]] = {
    "ppo": {"algorithm": "ppo", "env": "CartPole-v1"},
    "ppo-gymnasium": {"algorithm": "ppo", "env": "gymnasium:CartPole-v1"},
    "ppo-processes": {
        "algorithm": "ppo",
        "env": "CartPole-v1",
        "plan": "actor*2 | learner",
        "on": "processes",
    },
    "impala-free": {
        "algorithm": "impala",
        "env": "CartPole-v1",
        "plan": "actor*2 | learner",
        "on": "processes",
        "free": True,
        "lag": 4,
        "block": 2,
    },
    # light updates: a gradient step every two steps, on two layers of 64
    "dqn": {
        "algorithm": "dqn",
        "env": "CartPole-v1",
        "prioritised": True,
        "hidden": (64, 64),
        "batch": 32,
    },
}


def used() -> tuple[float, float]:
    """CPU seconds so far and MiB now, of this process and all that it started."""
    me = psutil.Process()
    seconds = size = 0.0
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            seconds += sum(process.cpu_times()[:2])
            size += process.memory_full_info().pss / 2**20
    return seconds, size


def measure(name: str) -> str:
    tenths: list[tuple[float, float]] = []
    before, at = used()[0], 0
    with tempfile.TemporaryDirectory() as folder:
        request = dict(RUNS[name])

        def look(run: Any, report: Any) -> None:
            nonlocal before, at
            if report.steps < (len(tenths) + 1) * STEPS / 10:
                return
            seconds, size = used()
            tenths.append((1e6 * (seconds - before) / (report.steps - at), size))
            before, at = seconds, report.steps

        rondel.train(
            request.pop("algorithm"),
            request.pop("env"),
            steps=STEPS,
            out=Path(folder) / "run",
            eval_episodes=0,
            hooks=look,
            **request,
        )
    cost, size = zip(*tenths[1:], strict=True)
    words = " ".join(f"{key}={value}" for key, value in RUNS[name].items()).replace("|", "\\|")
    half = len(cost) // 2
    late, early = sum(cost[-half:]) / half, sum(cost[:half]) / half
    return (
        f"| {words} | {' '.join(f'{x:.0f}' for x in cost)} | {late / early:.2f} "
        f"| {' '.join(f'{x:.0f}' for x in size)} | {size[-1] - size[0]:+.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="*", default=list(RUNS), help=f"of {', '.join(RUNS)}")
    parser.add_argument("--write", action="store_true", help="write benchmarks/length.md")
    args = parser.parse_args()
    rows = [
        f"| run, {STEPS:,} steps | CPU time of a step in tenths 2 to 10, us | late / early "
        "| memory then, MiB | growth |",
        "|---|---|---|---|---|",
    ]
    for name in args.runs:
        rows.append(measure(name))
        print(rows[-1], flush=True)
    if args.write:
        head = "# The length of a run\n\n" + __doc__.split("\n\n", 2)[2].strip() + "\n\n"
        made = "\n\nMade by `python benchmarks/length.py --write`.\n"
        PAGE.write_text(head + "\n".join(rows) + made)


if __name__ == "__main__":
    main()
