"""Train two algorithms with several seeds each, then compare them in a table and a picture.

    python examples/seeds_and_compare.py [STEPS]

Takes about 20 seconds. Expect a table with 95 % intervals, in which PPO is ahead. With fewer than
five seeds no winner is named. The last line says where the picture of the learning curves is.
"""

import sys
from itertools import count
from pathlib import Path

import rondel


def main(steps: int = 50_000, seeds: int = 3) -> None:
    folders = (Path(f"runs/example-{n}") for n in count(1))
    folder = next(path for path in folders if not path.exists())  # runs are never overwritten
    for algorithm in ("ppo", "a2c"):
        runs = rondel.train(
            algorithm,
            "CartPole-v1",
            steps=steps,
            seeds=seeds,  # seeds 0, 1, 2: a run folder each, one compiled program for all
            out=folder / algorithm,
            eval_episodes=0,
        )
        for run in runs:
            print(f"{algorithm}, {run.path.name}: mean return {run.return_mean:.1f}")

    print(rondel.compare(folder))  # a table in Markdown
    picture = rondel.plot(folder, folder / "curves.png")
    print(f"learning curves: {picture}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
