"""The cost of profiling: one run whose meters are on and off in turns.

    python benchmarks/profile_cost.py           some 7 minutes on 2 cores; a table in Markdown
    python benchmarks/profile_cost.py --write   puts it into docs/profiling.md
    python benchmarks/profile_cost.py host --seconds 60    the rows with that in their name, shorter

Off means that no mark is made and that no request waits for its program to end. Turns of a few
rounds of the same run, in the same processes, alternate in the order on, off, off, on, so that
differences between runs and drift are in both. Every four turns give one ratio; the table has the
median with its 95 % interval by order statistics. Processor time is that of all processes of the
run. Linux only.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

PAGE = Path(__file__).parents[1] / "docs" / "profiling.md"
MARKS = ("<!-- cost -->\n", "<!-- end of cost -->\n")
HOST = "gymnasium:CartPole-v1"
# every process of a run imports this as it starts, and can then be told to switch
CUSTOM = '''\
import sys, time
from rondel.execution.telemetry import timing

_READY = timing.ready
_HOLD = ("workers.stage_worker", "backends.inline", "backends.serve_request")
_meters = []
_make = timing.Meter.__init__


def _made(self, *args, **more):
    _make(self, *args, **more)
    _meters.append(self)


class Off(timing.Meter):
    mark = ran = "".format  # takes anything, and next to no time

    def beats(self, *_):
        return "".format


def switch(on):
    """Meters on or off -> processor seconds of this process so far."""
    for one in _meters:  # to change the class itself would slow down all that it does
        one.__class__ = timing.Meter if on else Off
    for name in _HOLD:
        if module := sys.modules.get(f"rondel.execution.{name}"):
            module.ready = _READY if on else lambda tree: tree
    return time.process_time()


timing.Meter.__init__ = _made
timing.Metered.switch = lambda self, on: switch(on)
'''


class Case(NamedTuple):
    env: str
    rounds: int  # of a turn
    fields: dict[str, Any]
    in_a_call: int = 1


CASES = {
    "fused PPO, `all`": Case("CartPole-v1", 8, {}, 4),
    "host PPO, `all`": Case(HOST, 3, {}),
    "host PPO, `actor*2 | learner`, processes": Case(
        HOST, 4, {"plan": "actor*2 | learner", "on": "processes", "block": 4}
    ),
}


def blocks(case: Case, seconds: float) -> Iterator[list[tuple[float, float]]]:
    """(processor seconds, seconds) of turns on, off, off, on."""
    import sitecustomize

    import rondel
    from rondel.execution.requests import Request

    with rondel.start("ppo", case.env, steps=2**40, **case.fields) as run:
        reports = run.rounds(at_a_time=case.in_a_call)
        here = run.ring.lowering.in_driver
        elsewhere = [] if here else [copy for piece in run.ring.copies for copy in piece]

        def switched(on: bool) -> float:
            told = run.ring.backend.get([copy.send(Request("switch"), on) for copy in elsewhere])
            return float(sitecustomize.switch(on) + sum(map(float, told)))

        def turn(on: bool) -> tuple[float, float]:
            switched(on)
            for _ in range(case.in_a_call):
                next(reports)  # what the turn before has left in caches and queues
            spent, began = switched(on), time.perf_counter()
            for _ in range(case.rounds):
                next(reports)
            took = time.perf_counter() - began
            return switched(on) - spent, took

        for _ in range(20 * case.in_a_call):
            next(reports)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            yield [turn(on) for on in (True, False, False, True)]


def row(name: str, case: Case, seconds: float) -> str:
    found = list(blocks(case, seconds))
    cells = []
    for kind in (0, 1):
        ratios = sorted((a[kind] + d[kind]) / (b[kind] + c[kind]) - 1 for a, b, c, d in found)
        half = len(ratios) / 2
        out = max(0, int(half - 0.98 * len(ratios) ** 0.5))  # 95 % of a fair coin's counts are in
        low, high = ratios[out], ratios[-1 - out]
        cells.append(f"{median(ratios):+.2%} ({low:+.2%} to {high:+.2%})")
    each = median(b[1] + c[1] for _, b, c, _ in found) / 2 / case.rounds
    name = name.replace("|", "\\|")
    return f"| {name} | {4 * len(found)} | {each * 1e3:.1f} ms | {' | '.join(cells)} |"


def main() -> None:
    if "RONDEL_SWITCH" not in os.environ:  # start again, with that in the path of every process
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "sitecustomize.py").write_text(CUSTOM)
            paths = os.pathsep.join([folder, *(path for path in sys.path if path)])
            told = os.environ | {"PYTHONPATH": paths, "RONDEL_SWITCH": "1"}
            sys.exit(os.spawnve(os.P_WAIT, sys.executable, [sys.executable, *sys.argv], told))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", default="", help="of rows that have this in their name")
    parser.add_argument("--seconds", type=float, default=110.0, help="of each run")
    parser.add_argument("--write", action="store_true", help="put it into docs/profiling.md")
    asked = parser.parse_args()
    if asked.name and asked.write:
        parser.error("--write needs all rows.")
    lines = ["| run | turns | a round | processor time | time |", "|---|---|---|---|---|"]
    print("\n".join(lines))
    for name, case in CASES.items():
        if asked.name not in name:
            continue
        lines.append(row(name, case, asked.seconds))
        print(lines[-1], flush=True)
    if asked.write:
        before, start, rest = PAGE.read_text().partition(MARKS[0])
        _, stop, after = rest.partition(MARKS[1])
        assert start + stop == "".join(MARKS), f"{PAGE} has no place for the table"
        PAGE.write_text(before + start + "\n".join(lines) + "\n" + stop + after)


if __name__ == "__main__":
    main()
