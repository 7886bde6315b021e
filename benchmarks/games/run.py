"""Games: train by self-play, then play against an opponent that does not learn.

    python benchmarks/games/run.py tic-tac-toe --seeds 5
    python benchmarks/games/run.py connect-four --write

Each run is `rondel train alphazero GAME --steps N --seed S` with its tuned settings, then 1,000
greedy games with a random first player. The plain search has four times our simulations, and values
positions by random games.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import rondel

HERE = Path(__file__).parent
GAMES = 1_000


class Row(NamedTuple):
    env: str
    steps: int
    opponent: str  # arguments of the environment's id
    goal: str


ROWS = {
    "tic-tac-toe": Row("TicTacToe-v0", 100_000, "opponent=perfect", "no loss"),
    "connect-four": Row(
        "ConnectFour-v0", 1_500_000, "opponent=mcts&simulations={four_times}", "90% won"
    ),
}


def one(row: Row, seed: int, steps: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        run = rondel.train("alphazero", row.env, steps=steps, seed=seed, out=Path(folder) / "run")
        minutes = (time.perf_counter() - began) / 60
        simulations = run.setup.config.simulations
        other = f"{row.env}?{row.opponent.format(four_times=4 * simulations)}"
        played = rondel.evaluate(run, other, episodes=GAMES).returns
    won, drawn, lost = ((played == result).sum() for result in (1, 0, -1))
    return (
        f"| `rondel train alphazero {row.env} --steps {steps} --seed {seed}` | {minutes:.1f} | "
        f"`{other}` | {row.goal} | {won} | {drawn} | {lost} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="*", default=list(ROWS), help=f"of {', '.join(ROWS)}")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, help="by default the row's own number")
    parser.add_argument("--write", action="store_true", help="add to results.md")
    args = parser.parse_args()
    for name in args.rows:
        for seed in range(args.seeds):
            line = one(ROWS[name], seed, args.steps or ROWS[name].steps)
            print(line, flush=True)
            if args.write:
                with (HERE / "results.md").open("a") as results:
                    results.write(line + "\n")


if __name__ == "__main__":
    main()
