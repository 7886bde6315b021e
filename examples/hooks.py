"""Look into a run after each round, write your own log, and stop it early.

    python examples/hooks.py [STEPS]

Takes about 10 seconds. Expect a line of figures every 5 rounds, and an end well before the step
limit: the second hook stops the run once the entropy of the policy falls below 0.55.
"""

import csv
import sys
from pathlib import Path

import rondel


class CsvLog(rondel.Hook):
    """A log of your own: a row after each round, on disk whenever a checkpoint is."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w", newline="")
        self.rows = csv.writer(self.file)
        self.rows.writerow(["steps", "episodes", "return_mean", "entropy"])

    def after_round(self, run, record) -> None:
        entropy = record.metrics.get("entropy")  # metrics are empty while a memory warms up
        self.rows.writerow([record.steps, record.episodes, record.return_mean, entropy])
        if record.round % 5 == 0:
            done = f"round {record.round}: {record.steps:,} steps"
            print(f"{done}, mean return {record.return_mean:.1f}")

    def at_checkpoint(self, run) -> None:
        self.file.flush()

    def at_end(self, run) -> None:
        self.file.close()


def stop_when_certain(run, record) -> bool:
    """A function is a hook, too. Returning True ends the run after this round."""
    return record.metrics["entropy"] < 0.55


def main(steps: int = 200_000) -> None:
    log = CsvLog(Path("hooks.csv"))
    run = rondel.train(
        "ppo", "CartPole-v1", steps=steps, hooks=[log, stop_when_certain], eval_episodes=0
    )
    print(f"stopped after {run.steps:,} of {steps:,} steps, mean return {run.return_mean:.1f}")

    # The same rounds without a run folder and without hooks: iterate over `rondel.start`.
    with rondel.start("ppo", "CartPole-v1", steps=5_000) as run:
        for report in run:
            print(f"round {report.round}: {len(report.returns)} episodes ended")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
