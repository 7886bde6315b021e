"""What we claim about learning: every row is the default command, on seeds 0 to 9.

    python benchmarks/learning/run.py --write    all rows; rewrites benchmarks/learning/results.md
    python benchmarks/learning/run.py ppo-cartpole --seeds 3

Each run is `rondel train ALGORITHM ENV --steps N --seed S --json` in a process of its own, two at a
time; what counts is eval_return, the mean of 100 greedy episodes in fresh environments.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent


class Row(NamedTuple):
    algorithm: str
    env: str
    steps: int
    goal: float
    needed: int  # of 10 seeds


ROWS = {
    "ppo-cartpole": Row("ppo", "CartPole-v1", 100_000, 475, 10),
    "dqn-cartpole": Row("dqn", "CartPole-v1", 100_000, 475, 9),
    "ppo-acrobot": Row("ppo", "Acrobot-v1", 500_000, -90, 10),
    "ppo-pendulum": Row("ppo", "Pendulum-v1", 300_000, -200, 10),
}


def one(row: Row, seed: int, folder: str, flags: list[str]) -> dict[str, Any]:
    out = Path(folder) / f"{row.algorithm}-{row.env}-{seed}"
    command = [sys.executable, "-m", "rondel", "train", row.algorithm, row.env]
    command += ["--steps", str(row.steps), "--seed", str(seed), "--out", str(out), "--json", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="*", default=list(ROWS), help=f"of {', '.join(ROWS)}")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="rewrite results.md")
    args, flags = parser.parse_known_args()
    lines = [
        "| command | goal | seeds at goal | eval_return by seed | mean | steps/s (median) |",
        "|---|---|---|---|---|---|",
    ]
    for name in args.rows:
        row = ROWS[name]
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.jobs) as pool:
            work = [pool.submit(one, row, seed, folder, flags) for seed in range(args.seeds)]
            results = [each.result() for each in work]
        scores = [r["eval_return"] for r in results]
        speeds = sorted(r["steps_per_second"] for r in results)
        lines.append(
            f"| `rondel train {row.algorithm} {row.env} --steps {row.steps}` | {row.goal:g} "
            f"({row.needed} of 10) | {sum(s >= row.goal for s in scores)} of {len(scores)} | "
            f"{' '.join(f'{s:.0f}' for s in scores)} | {sum(scores) / len(scores):.1f} | "
            f"{speeds[len(speeds) // 2]:,.0f} |"
        )
        print(lines[-1], flush=True)
    if args.write:
        text = f"# Learning\n\n{__doc__}\n" + "\n".join(lines) + "\n"
        (HERE / "results.md").write_text(text)


if __name__ == "__main__":
    main()
