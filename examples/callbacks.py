"""Look into a run after each round, write your own log, and stop it early.

    python examples/callbacks.py [STEPS]

Takes about 10 seconds. Expect a line of figures every 5 rounds, and an end well before the step
limit: the second callback stops the run once the entropy of the policy falls below 0.55.
"""

import csv
import sys
from pathlib import Path

import rondel


class CsvLog:
    """A callback is any function of the run and the report of its last round."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w", newline="")
        self.rows = csv.writer(self.file)
        self.rows.writerow(["steps", "episodes", "return_mean", "entropy"])

    def __call__(self, run, report) -> None:
        entropy = report.metrics.get("entropy")  # metrics are empty while a memory warms up
        self.rows.writerow([report.steps, report.episodes, report.return_mean, entropy])
        if report.round % 5 == 0:
            done = f"round {report.round}: {report.steps:,} steps"
            print(f"{done}, mean return {report.return_mean:.1f}")


def stop_when_certain(run, report) -> bool:
    """Returning True ends the run after this round."""
    return report.metrics["entropy"] < 0.55


def main(steps: int = 200_000) -> None:
    log = CsvLog(Path("callbacks.csv"))
    run = rondel.train(
        "ppo", "CartPole-v1", steps=steps, callbacks=[log, stop_when_certain], eval_episodes=0
    )
    log.file.close()
    print(f"stopped after {run.steps:,} of {steps:,} steps, mean return {run.return_mean:.1f}")

    # The same rounds without a run folder and without callbacks: iterate over `rondel.start`.
    with rondel.start("ppo", "CartPole-v1", steps=5_000) as run:
        for report in run:
            print(f"round {report.round}: {len(report.returns)} episodes ended")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
