"""How fast Rondel is, and beside it the peers whose Python is given.

    python benchmarks/speed.py --write
    python benchmarks/speed.py --sb3 PYTHON --rejax PYTHON --sf PYTHON     peers: benchmarks/peers
    python benchmarks/speed.py cheetah "Pong 4ep"                          some of the rows

Rows are those of the targets, as far as they are there. Ours and theirs alternate, several
times; the table shows medians, and the ratio first, since no absolute time is a fact on a shared
machine. Each measurement is a process of its own; compilation counts in solve and start only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
RONDEL = [sys.executable, "-m", "rondel"]


class Row(NamedTuple):
    name: str
    what: str
    unit: str
    ours: Callable[[], float]
    peer: str  # which script in benchmarks/peers measures the peer
    faster: Callable[[float, float], float]  # (ours, theirs) -> how many times faster we are


def train(*flags: str, env: dict[str, str] | None = None) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [*RONDEL, "train", *flags, "--out", f"{folder}/run", "--json"]
        result = subprocess.run(
            command, capture_output=True, text=True, check=True, env=os.environ | (env or {})
        )
    return json.loads(result.stdout.splitlines()[-1])


def speed(*flags: str) -> Callable[[], float]:
    return lambda: train(*flags, "--eval-episodes", "0", "--no-tuned")["steps_per_second"]


def solve_cold() -> float:
    with tempfile.TemporaryDirectory() as cache:
        return solve(cache)


def solve(cache: str | None = None) -> float:
    """Seconds from the shell prompt until training has reached a mean return of 475."""
    env = {"JAX_COMPILATION_CACHE_DIR": cache} if cache else {}
    began = time.monotonic()
    train(
        "ppo", "CartPole-v1", "--steps", "500000", "--until-return", "475",
        "--eval-episodes", "0", env=env,
    )  # fmt: skip
    return time.monotonic() - began


def import_seconds() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import rondel; rondel.train"], check=True)
    return time.monotonic() - began


def jax_seconds() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import jax"], check=True)
    return time.monotonic() - began


FUSED = "--lanes 64 --rollout 128 --epochs 4 --minibatches 4 --hidden 64 64".split()
HOST = "--lanes 8 --rollout 32 --epochs 20 --minibatches 1 --hidden 64 64".split()
CHEETAH = "--lanes 64 --rollout 64 --epochs 2 --minibatches 4 --hidden 64 64".split()
PONG = "--lanes 8 --rollout 128 --minibatches 4".split()
DQN = "--lanes 1 --rollout 64 --updates 64 --batch 64 --hidden 256 256".split()

MORE = lambda ours, theirs: ours / theirs  # noqa: E731
LESS = lambda ours, theirs: theirs / ours  # noqa: E731

ROWS = [
    Row(
        "fused", "PPO, JAX CartPole, 64 lanes x 128, 4 epochs x 4 minibatches", "steps/s",
        speed("ppo", "jax:CartPole-v1", "--steps", "3000000", *FUSED), "rejax_fused", MORE,
    ),
    Row(
        "host", "PPO, gymnasium:CartPole-v1, 8 envs x 32, 20 epochs of 256", "steps/s",
        speed("ppo", "gymnasium:CartPole-v1", "--steps", "100000", *HOST), "sb3_host", MORE,
    ),
    Row(
        "DQN", "256x256, batch 64, one update per step", "updates/s",
        speed("dqn", "jax:CartPole-v1", "--steps", "20000", *DQN), "sbx_dqn", MORE,
    ),
    Row(
        "cheetah", "PPO, envpool:HalfCheetah-v5, 64 envs x 64, 2 epochs of 4 x 1,024", "steps/s",
        speed("ppo", "envpool:HalfCheetah-v5", "--steps", "200000", *CHEETAH), "sf_cheetah", MORE,
    ),
    Row(
        "Pong 4ep", "PPO, pixels, Nature CNN, 8 envs x 128, 4 epochs of 4 x 256", "steps/s",
        speed("ppo", "envpool:Pong-v5", "--steps", "16000", "--epochs", "4", *PONG),
        "sb3_pong", MORE,
    ),
    Row(
        "Pong 1ep", "IMPALA (peer: APPO), pixels, Nature CNN, 8 envs x 128, one pass", "steps/s",
        speed("impala", "envpool:Pong-v5", "--steps", "25000", *PONG), "sf_pong", MORE,
    ),
    Row("solve, cold", "shell prompt to mean return 475", "s", solve_cold, "sb3_solve", LESS),
    Row("solve, warm", "the same with compiled programs kept", "s", solve, "sb3_solve", LESS),
    Row("start", "import rondel, with all that train needs", "s", import_seconds, "jax", LESS),
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="*", default=[row.name for row in ROWS])
    parser.add_argument("--sb3", help="a Python with stable-baselines3 and sbx-rl")
    parser.add_argument("--rejax", help="a Python with rejax")
    parser.add_argument("--sf", help="a Python with sample-factory")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="rewrite speed.md")
    args = parser.parse_args()
    pythons = {"sb3": args.sb3, "sbx": args.sb3, "rejax": args.rejax, "sf": args.sf}

    def theirs(peer: str) -> float | None:
        if peer == "jax":
            return jax_seconds()
        python = pythons[peer.partition("_")[0]]
        if python is None:
            return None
        script = HERE / "peers" / f"{peer}.py"
        done = subprocess.run([python, str(script)], capture_output=True, text=True, check=True)
        return float(done.stdout.splitlines()[-1])

    lines = [
        "| row | workload | ratio | Rondel | peer | peer's figure | unit |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        if row.name not in args.rows:
            continue
        pairs = [(row.ours(), theirs(row.peer)) for _ in range(args.repeats)]
        ours = statistics.median(o for o, _ in pairs)
        peer = [t for _, t in pairs if t is not None]
        ratio = f"{row.faster(ours, statistics.median(peer)):.2f} x" if peer else ""
        shown = f"{statistics.median(peer):,.4g}" if peer else "not measured"
        name = row.peer.partition("_")[0]
        lines.append(
            f"| {row.name} | {row.what} | {ratio} | {ours:,.4g} | {name} | {shown} | {row.unit} |"
        )
        print(lines[-1], flush=True)
    if args.write:
        machine = (
            f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
        )
        text = f"# Speed\n\n{__doc__}\n{machine}; medians of {args.repeats}.\n\n"
        (HERE / "speed.md").write_text(text + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
