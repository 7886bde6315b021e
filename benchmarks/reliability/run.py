"""Kill anything, lose nothing: faults of all kinds against plans, in real processes.

    python benchmarks/reliability/run.py                     the table, printed
    python benchmarks/reliability/run.py --write             written to docs/reliability.md
    python benchmarks/reliability/run.py kill --only ray     one fault, on one backend
    python benchmarks/reliability/run.py cost                what keeping costs, without any fault
    python benchmarks/reliability/run.py soak --minutes 30   faults at random, for long

A fault strikes one of the run's processes, chosen at random, about once a second for a minute (or
until the run is over); in a soak on Ray once in ten seconds, since a copy takes some to start. Then
the run goes on to its end and is compared with one that nobody disturbed: the same parameters, bit
for bit, and the same number of steps, where the plan is deterministic and the environment's state
can be kept.
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
from collections.abc import Sequence
from contextlib import suppress
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
    Case("ppo", "CartPole-v1", "actor*2 | learner", 400_000, 400),
    Case("dqn", "CartPole-v1", "actor*2 | memory | gradient+update", 30_000, 20, block=4),
    Case("ppo", "CartPole-v1", "env*2 | policy+learner", 200_000, 100),
    Case("ppo", "gymnasium:CartPole-v1", "actor*2 | learner", 200_000, 100),
    Case("dqn", "CartPole-v1", "actor*2 | learner", 100_000, 20, free=True, lag=2, block=4),
    Case("impala", "CartPole-v1", "actor*2 | learner", 300_000, 100, free=True, lag=4, block=2),
)


def victims(run: Any) -> list[int]:
    """The processes of a run's copies, and those that start them."""
    backend = run.ring.backend
    pids = [getattr(c, "pid", 0) or getattr(c, "process", 0) for c in backend._copies]
    starter = getattr(backend, "_starter", None)
    servers = [s._server.pid for s in starter.spawners.values()] if starter else []
    return [pid for pid in (*pids, *servers) if pid]


class Chaos:
    """Strikes a random process about once in `every` seconds."""

    def __init__(
        self,
        run: Any,
        fault: str,
        seconds: float,
        every: float = 1.0,
        nodes: Nodes | None = None,
    ) -> None:
        self._run, self._fault, self._seconds, self.nodes = run, fault, seconds, nodes
        self._every = every
        self._random = random.Random(0)
        self._over = threading.Event()
        self.strikes = 0
        self._thread = threading.Thread(target=self._strike, daemon=True)

    def __enter__(self) -> Chaos:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._thread.join()

    def _pause(self) -> float:
        return self._every * self._random.uniform(0.5, 1.5)

    def _strike(self) -> None:
        end = time.monotonic() + self._seconds
        while time.monotonic() < end and not self._over.wait(self._pause()):
            if not (pids := victims(self._run)):
                continue
            kind = self._fault
            if kind == "soak":  # a stop is found after five seconds, on Ray after the deadline
                odds = (30, 3, 3) if self.nodes else (40, 3, 0)
                kind = self._random.choices(("kill", "stop", "node"), odds)[0]
            if kind == "node" and self.nodes:
                self.nodes.lose()
                continue
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


def cost(seconds: float, cases: Sequence[Case], backends: Sequence[str]) -> list[str]:
    """Time and CPU time of a step with keeping, against those without, in turn.

    CPU time is what keeping takes whoever else is busy on the machine.
    """
    rows = [
        "| plan | on | time, each turn | median | CPU time, each turn | median |",
        "|---|---|---|---|---|---|",
    ]
    for case in cases:
        for on in backends:
            turns = []
            for _ in range(5):
                kept, plain = (spent(case, on, restarts, seconds) for restarts in (20, 0))
                turns.append((kept[0] / plain[0], kept[1] / plain[1]))
            told = [
                f"{', '.join(f'{x:.3f}' for x in each)} | {statistics.median(each):.3f}"
                for each in zip(*turns, strict=True)
            ]
            rows.append(f"| {case.name} | {on} | {' | '.join(told)} |")
            print(rows[-1], flush=True)
    return rows


def spent(case: Case, on: str, restarts: int, seconds: float) -> tuple[float, float]:
    """Seconds, and CPU seconds of all its processes, for a million steps."""
    with case._replace(steps=10**9).start(on, restarts=restarts) as run:
        reports = run.rounds()
        for _ in range(5):
            next(reports)
        began, busy, before = time.monotonic(), cpu_seconds(), run.steps
        while time.monotonic() - began < seconds:
            next(reports)
        steps = (run.steps - before) / 1e6
        return (time.monotonic() - began) / steps, (cpu_seconds() - busy) / steps


def cpu_seconds() -> float:
    """What this process and all that it started have used so far."""
    return sum(sum(process.cpu_times()[:2]) for process in family())


def family() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


class Nodes:
    """A cluster of Ray on this machine, of which a node can be lost."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        self._nodes: list[Any] = []
        self.add()
        self._cluster.wait_for_nodes()
        self.address = self._cluster.address
        self.lost = 0

    def lose(self) -> None:
        """The oldest node goes, if there is another."""
        if len(self._nodes) == 2:
            self._cluster.remove_node(self._nodes.pop(0), allow_graceful=False)
            self.lost += 1

    def add(self) -> None:
        """There is one node more than the run needs. (Ray lets only the main thread do this.)"""
        while len(self._nodes) < 2:
            self._nodes.append(self._cluster.add_node(num_cpus=2))

    def close(self) -> None:
        self._cluster.shutdown()


def soak(on: str, minutes: float) -> list[str]:
    """Kills, stops and lost nodes at random for long: nothing grows, and nothing hangs."""
    rows = [
        "| minute | steps | strikes | nodes lost | restarts | driver, MiB | all, MiB "
        "| descriptors | longest wait, s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    case = CASES[0]._replace(steps=10**12)
    nodes = Nodes() if on == "ray" else None
    more = {"address": nodes.address, "deadline": 40.0} if nodes else {}
    every = 10.0 if nodes else 1.0  # a copy on Ray takes seconds to start
    strikes = ("soak", minutes * 60, every, nodes)
    try:
        with case.start(on, **more) as run, Chaos(run, *strikes) as chaos:
            began = last = time.monotonic()
            told = waited = 0.0
            for report in run.rounds():
                now = time.monotonic()
                waited, last = max(waited, now - last), now
                if nodes:
                    nodes.add()
                    last = time.monotonic()
                if (now - began) / 60 >= told:
                    rows.append(_soaked((now - began) / 60, report, run, chaos, waited))
                    print(rows[-1], flush=True)
                    told, waited = told + minutes / 10, 0.0
                if now - began >= 60 * minutes:
                    break
    finally:
        if nodes:
            nodes.close()
    left = [process for process in family()[1:] if process.is_running()]
    print(f"{len(left)} processes left", flush=True)
    return rows


def _soaked(minute: float, report: Any, run: Any, chaos: Chaos, waited: float) -> str:
    deaths = sum(len(copy.journal.deaths) for copy in run.ring.backend._copies)
    sizes = []
    for process in family():
        with suppress(psutil.NoSuchProcess):
            sizes.append(process.memory_info().rss / 2**20)
    lost = chaos.nodes.lost if chaos.nodes else 0
    return (
        f"| {minute:.0f} | {report.steps:,} | {chaos.strikes} | {lost} | {deaths} | {sizes[0]:.0f} "
        f"| {sum(sizes):.0f} | {psutil.Process().num_fds()} | {waited:.1f} |"
    )


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
    cases = CASES if args.case is None else CASES[args.case : args.case + 1]
    if args.what == "cost":
        lines = cost(min(args.seconds, 15.0), cases[:2], backends)
    elif args.what == "soak":
        lines = soak(backends[0], args.minutes)
    else:
        faults = ["kill", "stop"] if args.what == "faults" else [args.what]
        lines = ["| fault | run | on | strikes | outcome | took |", "|---|---|---|---|---|---|"]
        for fault in faults:
            for on in backends if fault == "kill" else backends[:1]:
                for case in cases:
                    lines.append(strike(case, on, fault, args.seconds))
                    print(lines[-1], flush=True)
    if args.write:
        write(f"soak on {backends[0]}" if args.what == "soak" else args.what, lines)


if __name__ == "__main__":
    main()
