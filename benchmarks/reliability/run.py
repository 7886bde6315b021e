"""Kill anything, lose nothing: faults of all kinds against plans, in real processes.

    python benchmarks/reliability/run.py                     the table, printed
    python benchmarks/reliability/run.py --write             written to docs/reliability.md
    python benchmarks/reliability/run.py kill --only ray     one fault, on one backend
    python benchmarks/reliability/run.py cost                what keeping costs, without any fault
    python benchmarks/reliability/run.py soak --minutes 30   kills and stops at random, for long

A fault strikes one of the run's processes, chosen at random, about once a second for a minute (or
until the run is over). Then the run goes on to its end and is compared with one that nobody
disturbed: the same parameters, bit for bit, and the same number of steps, where the plan is
deterministic and the environment's state can be kept.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import statistics
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import psutil

import rondel

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "reliability.md"


class Case(NamedTuple):
    algorithm: str
    env: str
    plan: str
    steps: int
    goal: float  # mean return of the last 100 episodes, at the end
    free: bool = False
    lag: int = 0
    block: int | None = None

    @property
    def name(self) -> str:
        how = f", free, lag {self.lag}" if self.free else f", lag {self.lag}" if self.lag else ""
        return f"{self.algorithm} {self.env} `{self.plan}`{how}".replace("|", "\\|")

    def start(self, on: str, **more: Any) -> Any:
        return rondel.start(
            self.algorithm,
            self.env,
            steps=self.steps,
            plan=self.plan,
            lag=self.lag,
            free=self.free,
            on=on,
            block=self.block,
            **more,
        )


CASES = (
    Case("ppo", "CartPole-v1", "actor*2 | learner", 200_000, 400),
    Case("dqn", "CartPole-v1", "actor*2 | memory | gradient+update", 30_000, 20, block=4),
    Case("ppo", "CartPole-v1", "env*2 | policy+learner", 100_000, 100),
    Case("ppo", "gymnasium:CartPole-v1", "actor*2 | learner", 100_000, 100),
    Case("dqn", "CartPole-v1", "actor*2 | learner", 60_000, 20, free=True, lag=2, block=4),
)


def victims(run: Any) -> list[int]:
    """The processes of a run's copies, and those that start them."""
    backend = run.ring.backend
    pids = [getattr(c, "pid", 0) or getattr(c, "process", 0) for c in backend._copies]
    starter = getattr(backend, "_starter", None)
    servers = [s._server.pid for s in starter.spawners.values()] if starter else []
    return [pid for pid in (*pids, *servers) if pid]


class Chaos:
    """Strikes a random process about once a second."""

    def __init__(self, run: Any, fault: str, seconds: float, seed: int = 0) -> None:
        self._run, self._fault, self._seconds = run, fault, seconds
        self._random = random.Random(seed)
        self._over = threading.Event()
        self.strikes = 0
        self._thread = threading.Thread(target=self._strike, daemon=True)

    def __enter__(self) -> Chaos:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._thread.join()

    def _strike(self) -> None:
        end = time.monotonic() + self._seconds
        while time.monotonic() < end and not self._over.wait(self._random.uniform(0.5, 1.5)):
            if not (pids := victims(self._run)):
                continue
            kind = self._random.choice(("kill", "stop")) if self._fault == "soak" else self._fault
            which = signal.SIGSTOP if kind == "stop" else signal.SIGKILL
            try:
                os.kill(self._random.choice(pids), which)
                self.strikes += 1
            except ProcessLookupError:
                pass


def params_of(run: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(run.ring.learner())]


def undisturbed(case: Case, on: str) -> tuple[list[np.ndarray], int]:
    with case.start(on) as run:
        for _ in run.rounds():
            pass
        return params_of(run), run.steps


def strike(case: Case, on: str, fault: str, seconds: float) -> str:
    """A row of the table."""
    exact = not case.free and not case.env.startswith("gymnasium:")
    wanted, steps = undisturbed(case, "inline") if exact else ([], 0)
    began = time.monotonic()
    counted = 0
    with case.start(on) as run:
        with Chaos(run, fault, seconds) as chaos:
            for report in run.rounds():
                assert report.steps > counted, "a step was lost or counted twice"
                counted = report.steps
        got, value = params_of(run), report.return_mean or 0.0
        deaths = sum(len(c.journal.deaths) for c in run.ring.backend._copies)
        if exact:
            assert run.steps == steps, (run.steps, steps)
            for a, b in zip(got, wanted, strict=True):
                np.testing.assert_array_equal(a, b)
    assert value >= case.goal, f"{case.name}: {value} is below {case.goal}"
    left = [p for p in psutil.Process().children(recursive=True) if p.is_running()]
    outcome = "bit-equal" if exact else "finished"
    spent = time.monotonic() - began
    return (
        f"| {fault} | {case.name} | {on} | {chaos.strikes} strikes, {deaths} restarts | {outcome}, "
        f"{counted:,} steps, return {value:.0f}, {len(left)} processes left | {spent:.0f} s |"
    )


def cost(seconds: float) -> list[str]:
    """Steps/s with and without keeping, in turn."""
    rows = ["| plan | on | kept against not kept, each turn | median |", "|---|---|---|---|"]
    for case in CASES[:2]:
        for on in ("processes", "ray"):
            shares = []
            for _ in range(5):
                speeds = [speed(case, on, restarts, seconds) for restarts in (20, 0)]
                shares.append(speeds[0] / speeds[1])
            told = ", ".join(f"{share:.3f}" for share in shares)
            rows.append(f"| {case.name} | {on} | {told} | {statistics.median(shares):.3f} |")
            print(rows[-1], flush=True)
    return rows


def speed(case: Case, on: str, restarts: int, seconds: float) -> float:
    with case._replace(steps=10**9).start(on, restarts=restarts) as run:
        reports = run.rounds()
        for _ in range(5):
            next(reports)
        began, before = time.monotonic(), run.steps
        while time.monotonic() - began < seconds:
            next(reports)
        return (run.steps - before) / (time.monotonic() - began)


def soak(on: str, minutes: float) -> list[str]:
    """Kills and stops at random for long: memory and descriptors stay what they were."""
    rows = [
        "| minute | steps | restarts | this process, MiB | descriptors |",
        "|---|---|---|---|---|",
    ]
    me = psutil.Process()
    case = CASES[0]._replace(steps=10**12)
    with case.start(on) as run, Chaos(run, "soak", minutes * 60):
        began, told = time.monotonic(), 0.0
        for report in run.rounds():
            now = (time.monotonic() - began) / 60
            if now >= told:
                deaths = sum(len(c.journal.deaths) for c in run.ring.backend._copies)
                rows.append(
                    f"| {now:.0f} | {report.steps:,} | {deaths} | "
                    f"{me.memory_info().rss / 2**20:.0f} | {me.num_fds()} |"
                )
                print(rows[-1], flush=True)
                told = now + minutes / 10
            if now >= minutes:
                break
    return rows


def write(name: str, lines: list[str]) -> None:
    """Put a table in the place of the one of that name."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = PAGE.read_text().partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text(before + "\n".join([begin, *lines, end]) + after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", default="faults", help="faults, kill, stop, cost, soak")
    parser.add_argument("--only", choices=["processes", "ray"], help="one backend")
    parser.add_argument("--case", type=int, help="one of the cases, by its place")
    parser.add_argument("--seconds", type=float, default=60.0, help="of strikes, or per speed")
    parser.add_argument("--minutes", type=float, default=30.0, help="of soaking")
    parser.add_argument("--write", action="store_true", help="write the table to docs")
    args = parser.parse_args()
    logging.getLogger("rondel").setLevel(logging.ERROR)
    backends = [args.only] if args.only else ["processes", "ray"]
    if args.what == "cost":
        lines = cost(min(args.seconds, 15.0))
    elif args.what == "soak":
        lines = soak(backends[0], args.minutes)
    else:
        faults = ["kill", "stop"] if args.what == "faults" else [args.what]
        lines = ["| fault | run | on | strikes | outcome | took |", "|---|---|---|---|---|---|"]
        cases = CASES if args.case is None else CASES[args.case : args.case + 1]
        for fault in faults:
            for on in backends if fault == "kill" else backends[:1]:
                for case in cases:
                    lines.append(strike(case, on, fault, args.seconds))
                    print(lines[-1], flush=True)
    if args.write:
        write(args.what, lines)


if __name__ == "__main__":
    main()
