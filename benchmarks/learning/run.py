"""What algorithms learn: each row is a command, run with several seeds.

    python benchmarks/learning/run.py --write    all rows, written to benchmarks/learning/results.md
    python benchmarks/learning/run.py ppo-cartpole --seeds 500-509 --write     on other seeds
    python benchmarks/learning/run.py ppo-cartpole --seeds 100-102 --gamma 0.9      a trial
    python benchmarks/learning/run.py vtrace-lag-8 --keep runs/lag    and keep the runs there

Each run is `rondel train ALGORITHM ENV --steps N --seed S --json` in a process of its own, two at a
time. Its result is eval_return, the mean of 100 greedy episodes in fresh environments. A row's own
seeds begin at 0. `--write` also writes the figures of docs/algorithms.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import rondel
from rondel.envs.jax import key_door

HERE = Path(__file__).parent
RESULTS = HERE / "results.md"


class Row(NamedTuple):
    algorithm: str
    env: str
    steps: int
    goal: float
    needed: int  # of its seeds
    flags: tuple[str, ...] = ()
    seeds: int = 5

    @property
    def command(self) -> str:
        words = ["rondel", "train", self.algorithm, self.env, "--steps", str(self.steps)]
        return shlex.join([*words, *self.flags])


# CleanRL's settings of ppo_continuous_action.py, with its one environment of 2,048 steps as eight
CLEANRL = (
    *("--no-tuned", "--lanes", "8", "--rollout", "256", "--epochs", "10", "--minibatches", "32"),
    *("--learning-rate", "3e-4", "--anneal-steps", "1000000"),
    *("--normalise-observations", "--scale-rewards"),
)
# the paper's plan and its lag; on one thread, where the numbers are those of any other place
APEX = ("--plan", "apex", "--no-free", "--on", "inline")
HIDDEN = "CartPole-v1?velocities=false"


def behind(lag: int, plan: str = "actor*4 | learner") -> tuple[str, ...]:
    """Flags for weights exactly `lag` rounds old; inline, as no backend changes numbers."""
    return ("--plan", plan, "--lag", str(lag), "--on", "inline")


# episodes of the expert in `envs.key_door`, which `main` writes
SHOWN = ("--demonstrations", "shown.safetensors")
CENTRAL = "actor+memory+gradient*4 | update"
# what lag does with V-trace and without: the same settings, weights up to date and 8 rounds old
EVEN = (
    *("--no-tuned", "--lanes", "8", "--block", "2", "--rollout", "16", "--scale-rewards"),
    *("--anneal-steps", "300000"),
)


ROWS = {
    "ppo-cartpole": Row("ppo", "CartPole-v1", 100_000, 475, 10, seeds=10),
    "dqn-cartpole": Row("dqn", "CartPole-v1", 100_000, 475, 9, seeds=10),
    "c51-cartpole": Row("c51", "CartPole-v1", 100_000, 475, 5),
    "qrdqn-cartpole": Row("qrdqn", "CartPole-v1", 100_000, 475, 5),
    "rainbow-cartpole": Row("rainbow", "CartPole-v1", 100_000, 475, 5),
    "apex-cartpole": Row("apex", "CartPole-v1", 300_000, 475, 5),
    "ppo-acrobot": Row("ppo", "Acrobot-v1", 500_000, -90, 10, seeds=10),
    "ppo-pendulum": Row("ppo", "Pendulum-v1", 300_000, -200, 10, seeds=10),
    "ppo-hidden-gru": Row("ppo", HIDDEN, 1_000_000, 400, 5, ("--memory", "gru")),
    "ppo-hidden": Row("ppo", HIDDEN, 1_000_000, 400, 0),
    "ppo-cheetah-cleanrl": Row(
        "ppo", "envpool:HalfCheetah-v5", 1_000_000, 1_500, 2, CLEANRL, seeds=2
    ),
    "ppo-cheetah": Row("ppo", "envpool:HalfCheetah-v5", 1_000_000, 4_000, 2, seeds=2),
    "ppo-lunar-lander": Row("ppo", "envpool:LunarLander-v3", 1_000_000, 200, 3, seeds=3),
    "sac-pendulum": Row("sac", "Pendulum-v1", 20_000, -160, 5),
    "td3-pendulum": Row("td3", "Pendulum-v1", 20_000, -160, 5),
    "ddpg-pendulum": Row("ddpg", "Pendulum-v1", 20_000, -180, 5),
    "apex-ddpg-pendulum": Row("apex-ddpg", "Pendulum-v1", 20_000, -180, 5, APEX),
    "qtopt-pendulum": Row("qtopt", "Pendulum-v1", 60_000, -200, 5),
    "sac-cheetah": Row("sac", "envpool:HalfCheetah-v5", 300_000, 5_000, 2, seeds=2),
    "ppo-breakout": Row("ppo", "gymnax:Breakout-MinAtar", 10_000_000, 20, 3, seeds=3),
    "pg-cartpole": Row("pg", "CartPole-v1", 1_000_000, 400, 5),
    "a2c-cartpole": Row("a2c", "CartPole-v1", 500_000, 475, 5),
    "a3c-cartpole": Row("a3c", "CartPole-v1", 1_000_000, 475, 5, behind(1, CENTRAL)),
    "impala-cartpole": Row("impala", "CartPole-v1", 300_000, 475, 5, behind(4)),
    "appo-cartpole": Row("appo", "CartPole-v1", 300_000, 475, 5, behind(4)),
    "es-cartpole": Row("es", "CartPole-v1", 1_000_000, 475, 5),
    "ars-cartpole": Row("ars", "CartPole-v1", 500_000, 475, 5),
    "ars-swimmer": Row("ars", "gymnasium:Swimmer-v5", 2_000_000, 320, 5),
    "vtrace-lag-0": Row("impala", "CartPole-v1", 300_000, 475, 5, EVEN + behind(0)),
    "vtrace-lag-8": Row("impala", "CartPole-v1", 300_000, 475, 5, EVEN + behind(8)),
    "uncorrected-lag-0": Row("a3c", "CartPole-v1", 300_000, 475, 5, EVEN + behind(0)),
    "r2d2-hidden": Row("r2d2", HIDDEN, 1_000_000, 400, 5),
    # what nobody finds by chance: with demonstrations, and without
    "r2d3-key-door": Row("r2d3", "KeyDoor-v0", 300_000, 0.8, 5, SHOWN),
    "r2d2-key-door": Row("r2d2", "KeyDoor-v0", 300_000, 0.1, 0),
    "uncorrected-lag-8": Row("a3c", "CartPole-v1", 300_000, 475, 0, EVEN + behind(8)),
}


def one(row: Row, seed: int, folder: str, flags: list[str]) -> dict[str, Any]:
    out = Path(folder) / str(seed)
    command = [sys.executable, "-m", "rondel", "train", row.algorithm, row.env]
    command += ["--steps", str(row.steps), "--seed", str(seed), "--out", str(out), "--json"]
    command += [shown_in(folder) if flag == SHOWN[1] else flag for flag in row.flags] + flags
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def place(keep: Path | None, name: str) -> Iterator[str]:
    """The folder of a row's runs, which is removed afterwards unless it is to be kept."""
    if keep is None:
        with tempfile.TemporaryDirectory() as folder:
            yield folder
    else:
        (keep / name).mkdir(parents=True)
        yield str(keep / name)


def shown_in(folder: str) -> str:
    return str(Path(folder) / SHOWN[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="*", default=list(ROWS), help=f"of {', '.join(ROWS)}")
    parser.add_argument(
        "--seeds", type=seeds_of, metavar="A-B", help="by default the row's own number, from 0 on"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="rewrite results.md")
    parser.add_argument(
        "--keep", type=Path, help="a folder for the runs, for plots and comparisons"
    )
    args, flags = parser.parse_known_args()
    if unknown := sorted(set(args.rows) - set(ROWS)):
        parser.error(f"there is no row {unknown[0]}; rows are {', '.join(ROWS)}")
    if args.write and flags:
        parser.error(f"--write is for a row as it stands, without {' '.join(flags)}")
    for name in args.rows:
        row = ROWS[name]
        seeds = args.seeds or range(row.seeds)
        with place(args.keep, name) as folder, ThreadPoolExecutor(args.jobs) as pool:
            if SHOWN[1] in row.flags:
                rondel.record(key_door.expert, shown_in(folder), row.env, episodes=100)
            work = [pool.submit(one, row, seed, folder, flags) for seed in seeds]
            results = [each.result() for each in work]
        line = line_of(row, seeds, results)
        print(line, flush=True)
        if args.write:
            write(line)
    if args.write:
        subprocess.run(
            [sys.executable, str(HERE.parents[1] / "docs/algorithms/table.py")], check=True
        )


def seeds_of(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def line_of(row: Row, seeds: range, results: list[dict[str, Any]]) -> str:
    """The line of results.md: the goal's share of a row's seeds holds for any number of them."""
    scores = [r["eval_return"] for r in results]
    speeds = sorted(r["steps_per_second"] for r in results)
    digits = 0 if abs(row.goal) > 1 else 2
    cells = (
        f"`{in_table(row.command)}`",
        f"{seeds[0]} to {seeds[-1]}",
        f"{row.goal:g} ({row.needed} of {row.seeds})",
        f"{sum(s >= row.goal for s in scores)} of {len(scores)}",
        " ".join(f"{s:.{digits}f}" for s in scores),
        f"{sum(scores) / len(scores):.{digits + 1}f}",
        f"{speeds[len(speeds) // 2]:,.0f}",
    )
    return f"| {' | '.join(cells)} |"


def in_table(command: str) -> str:
    return command.replace("|", "\\|")


def write(line: str) -> None:
    """Replace the row of that command and those seeds; a new one follows its command's last."""
    before, mark, after = RESULTS.read_text().partition("<!-- end of rows -->")
    rows = before.rstrip("\n").split("\n")
    command, seeds = cells_of(line)[:2]
    same = [i for i, row in enumerate(rows) if cells_of(row)[:1] == [command]]
    old = [i for i in same if cells_of(rows[i])[1] == seeds]
    if old:
        rows[old[0]] = line
    else:
        rows.insert(same[-1] + 1 if same else len(rows), line)
    RESULTS.write_text("\n".join(rows) + f"\n{mark}{after}")


def cells_of(line: str) -> list[str]:
    """The cells of a table's line; a bar within a cell is written with a backslash."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def rows_of(command: str) -> list[list[str]]:
    """The cells of all lines that results.md has for a command."""
    lines = map(cells_of, RESULTS.read_text().partition("<!-- end of rows -->")[0].split("\n"))
    return [cells for cells in lines if cells[:1] == [f"`{in_table(command)}`"]]


if __name__ == "__main__":
    main()
