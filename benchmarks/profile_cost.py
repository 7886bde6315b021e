"""What it costs to know where the time goes: the same run with its meters and without, by turns.

    python benchmarks/profile_cost.py        a few minutes on 2 cores; a table in Markdown

Without means that no mark is made and that no request waits for its program to end. In one thread
that is switched from call to call of a single run; with processes each turn is a run of its own,
without meters by a `sitecustomize` that its processes import. It is processor time of all of them:
others on the machine don't count, though they are in the caches too. Linux only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import rondel
from rondel.execution import fragment
from rondel.execution.backends import inline
from rondel.execution.meter import Meter

HOST = "gymnasium:CartPole-v1"
IN_TURN = {  # one thread: (environment, calls, rounds of a call)
    "fused PPO, `all`": ("CartPole-v1", 400, 2),
    "host PPO, `all`": (HOST, 500, 1),
}
PLAN = "actor*2 | learner"
STEPS, WARM, TURNS = 40_000, 10_000, 6  # of a run over processes, and how many with and without
OFF = """\
from rondel.execution import meter
meter.Meter.mark = meter.Meter.ran = lambda *_, **__: None
meter.ready = lambda tree: tree
"""


@contextmanager
def unmetered() -> Iterator[None]:
    """No marks in this thread, and no waiting for what was asked for."""
    kept = (Meter.mark, Meter.ran, inline.ready, fragment.ready)
    nothing: Any = lambda *_, **__: None  # noqa: E731
    Meter.mark = Meter.ran = nothing  # type: ignore[method-assign]
    inline.ready = fragment.ready = lambda tree: tree
    try:
        yield
    finally:
        Meter.mark, Meter.ran, inline.ready, fragment.ready = kept  # type: ignore[method-assign]


def in_turn(env: str, calls: int, rounds: int) -> tuple[list[float], list[float]]:
    """Processor seconds of a call, with and without."""
    spent: tuple[list[float], list[float]] = ([], [])
    with rondel.start("ppo", env, steps=2**40) as run:
        reports = run.rounds(at_a_time=rounds)
        for _ in range(10 * rounds):
            next(reports)
        for i in range(2 * calls):
            # pairs in turned order, so that what drifts drifts through both alike
            without = (i % 4) in (1, 2)
            began = time.process_time()
            if without:
                with unmetered():
                    _take(reports, rounds)
            else:
                _take(reports, rounds)
            spent[without].append(time.process_time() - began)
    return spent


def _take(reports: Iterator[Any], rounds: int) -> None:
    for _ in range(rounds):
        next(reports)


def over_processes() -> tuple[list[float], list[float]]:
    """Processor seconds of a run, with and without."""
    spent: tuple[list[float], list[float]] = ([], [])
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(OFF)
        for i in range(2 * TURNS):
            without = (i % 4) in (1, 2)
            paths = ([folder] if without else []) + [path for path in sys.path if path]
            told = subprocess.run(
                [sys.executable, __file__, "turn"],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
                check=True,
                capture_output=True,
                text=True,
            )
            seconds, marks = json.loads(told.stdout.splitlines()[-1])
            assert without == (marks == 0), "the meters were not switched"
            spent[without].append(seconds)
    return spent


def turn() -> None:
    """One run over processes: its processor seconds when it is warm, and how much was marked."""
    with rondel.start("ppo", HOST, steps=STEPS, plan=PLAN, on="processes", block=4) as run:
        began = None
        for report in run:
            if began is None and report.steps > WARM:
                began = _processor_seconds()
        assert began is not None
        seconds = _processor_seconds() - began
        marks = sum(len(told.spent) for piece in run.ring.metered() for _, told in piece)
    print(json.dumps([seconds, marks]))


def _processor_seconds() -> float:
    """Of this process and all below it."""
    ticks, parents = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(path.parent.name)] = int(fields[1])
        ticks[int(path.parent.name)] = int(fields[11]) + int(fields[12])
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(ticks[pid] for pid in ours) / os.sysconf("SC_CLK_TCK")


def _row(name: str, each: tuple[list[float], list[float]]) -> str:
    """Medians, the middle of the differences of neighbours, and its interval by their order."""
    metered, bare = (median(spent) for spent in each)
    pairs = sorted((a - b) / bare for a, b in zip(*each, strict=True))
    half = len(pairs) / 2
    out = max(0, int(half - 0.98 * len(pairs) ** 0.5))  # 95 % of a fair coin's counts are inside
    unit, scale = ("s", 1.0) if metered > 1 else ("ms", 1e3)
    return (
        f"| {name} | {len(pairs)} | {metered * scale:.4g} {unit} | {bare * scale:.4g} {unit} | "
        f"{median(pairs):+.2%} | {pairs[out]:+.1%} to {pairs[-1 - out]:+.1%} |"
    )


def main() -> None:
    print("| run | pairs | with meters | without | more | 95 % interval |")
    print("|---|---|---|---|---|---|")
    for name, (env, calls, rounds) in IN_TURN.items():
        print(_row(name, in_turn(env, calls, rounds)), flush=True)
    name = f"host PPO, `{PLAN}`, processes".replace("|", "\\|")
    print(_row(name, over_processes()), flush=True)


if __name__ == "__main__":
    turn() if sys.argv[1:] == ["turn"] else main()
