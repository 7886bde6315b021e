"""How fast Rondel is beside its peers: each row alternates between them, on this machine.

    make bench                                       the quick rows (minutes)
    make bench-full                                  all rows (an hour or two)
    python benchmarks/scoreboard/run.py SAC host     some of the rows
    python benchmarks/scoreboard/run.py --report     only write the table and the chart again

Every figure has a process of its own; a peer's runs in an environment of its own with pinned
versions, made on first use. A fixed piece of work before and after each figure shows how busy the
machine was, and a figure from a busy moment is repeated. Results go to benchmarks/results.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import report
import venvs
from noise import Quiet, Turn
from rows import HERE, ROWS, Row


def theirs(peer: str, *more: str) -> float:
    name, _, argument = peer.partition(":")
    python = venvs.python(report.venv_of(peer))
    command = [python, str(HERE / "peers" / f"{name}.py"), *filter(None, [argument]), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[1:])} failed:\n{done.stderr[-3000:]}")
    return float(done.stdout.splitlines()[-1])


def measure(row: Row, repeats: int, quiet: Quiet) -> None:
    """Measure a row in turns, ours and the peers', and keep the figures."""
    turns: dict[str, list[Turn]] = {}
    for peer in row.peers:
        venvs.python(report.venv_of(peer))  # nothing is installed between turns
    for turn in range(repeats):
        for who in ("rondel", *row.peers):
            run = row.ours if who == "rondel" else lambda who=who: theirs(who)
            taken = quiet.measure(run)
            turns.setdefault(who, []).append(taken)
            figure = f"{taken.figure:,.4g} {row.unit}"
            print(f"  {row.name}, turn {turn + 1}: {who} {figure}", flush=True)
    report.keep(row, turns)  # not before all turns are there: an interrupt leaves what was


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="*", help="names of rows; default: the quick ones")
    parser.add_argument("--full", action="store_true", help="all rows")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--report", action="store_true", help="only write the table and chart again"
    )
    args = parser.parse_args()
    names = {row.name.lower(): row.name for row in ROWS}
    unknown = [name for name in args.rows if name.lower() not in names]
    if unknown:
        there = ", ".join(f'"{name}"' for name in names.values())
        parser.error(f"rows are {there}, got {unknown[0]!r}")
    if args.repeats < 1:
        parser.error("--repeats must be 1 or more")
    asked = [names[name.lower()] for name in args.rows]
    wanted = asked or [row.name for row in ROWS if args.full or row.quick]
    if not args.report:
        quiet = Quiet()
        for row in (row for row in ROWS if row.name in wanted):
            print(f"{row.name}: {row.what}", flush=True)
            measure(row, args.repeats, quiet)
            print(report.line(row), flush=True)
    report.write()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("Stopped; rows that were measured whole are kept: --report shows them.")
        sys.exit(130)
