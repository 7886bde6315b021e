"""Many actors and a learner, on processes and Ray, beside peers: results/actors.md.

    python benchmarks/scoreboard/actors.py
    chrt -r 5 python benchmarks/scoreboard/actors.py     as root, on a machine with other work

Each figure has a process of its own; ours and theirs alternate. Where a peer's learner waits for
its actors (RLlib's PPO) ours does too, and where it doesn't (Sample Factory's APPO) ours doesn't.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
from importlib.metadata import version
from typing import NamedTuple

import report
import venvs
from noise import Quiet
from rows import script

from run import theirs

ACTORS = (1, 4, 16)
ENVS = ("cheap", "slow")
SECONDS = 12
FIGURES, PAGE = report.RESULTS / "actors.json", report.RESULTS / "actors.md"
HEAD = """# Actors

Steps per second of n actors beside one learner, start and compilation left out. Each actor has 8
lanes, which it steps one after the other; a round is 64 steps of each, and is learned from once, as
one minibatch, by two perceptrons of two layers of 64. The environment is Gymnasium's CartPole
(cheap), or one of its shapes that only sleeps, 2 ms per step (slow), so an actor can do at most 500
steps a second. `python benchmarks/scoreboard/actors.py`, one turn each. The ratio comes
first: above 1 Rondel is ahead. "Busy" is how many times slower a fixed piece of work was around the
figures than at its best.
"""


class Pace(NamedTuple):
    """Whether learner and actors wait for each other, and the peer that does so too."""

    title: str
    what: str
    algorithm: str
    peer: str
    named: str


PACES = (
    Pace(
        "In step", "PPO on both sides: a round begins when the one before has been learned from.",
        "ppo", "rllib_actors", "RLlib",
    ),
    Pace(
        "Free", "Actors don't wait for the learner: IMPALA with `--lag 1 --free`, and APPO.",
        "impala", "sf_actors", "Sample Factory",
    ),
)  # fmt: skip


class Figure(NamedTuple):
    """Steps per second, and how busy the machine was with others at the worst of the three."""

    pace: str
    env: str
    actors: int
    processes: float
    ray: float
    peer: float
    busy: float


def measure(pace: Pace, env: str, actors: int, quiet: Quiet) -> Figure:
    sizes = env, str(actors), str(SECONDS)
    ours = [("../distribution/run", "--figure", pace.algorithm, on) for on in ("processes", "ray")]
    runs = [functools.partial(script, *words, *sizes) for words in ours]
    runs.append(functools.partial(theirs, pace.peer, *sizes))
    speeds, busy, _ = zip(*map(quiet.measure, runs), strict=True)
    return Figure(pace.title, env, actors, *speeds, round(max(busy), 2))


def line(figure: Figure) -> str:
    """A row of the table."""
    ours = figure.processes, figure.ray
    ratios = " | ".join(f"{mine / figure.peer:.2f}" for mine in ours)
    speeds = " | ".join(f"{speed:,.0f}" for speed in (*ours, figure.peer))
    return f"| {figure.env} | {figure.actors} | {ratios} | {speeds} | {figure.busy:.2f} |"


def page(figures: list[Figure]) -> str:
    """All tables of what was measured so far."""
    parts = [HEAD]
    for pace in PACES:
        titles = (
            *("environment", "actors", f"processes, times {pace.named}", "Ray, times it"),
            *("Rondel, processes", "Rondel, Ray", pace.named, "busy"),
        )
        lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
        lines += [line(figure) for figure in sorted(figures) if figure.pace == pace.title]
        parts.append("\n".join([f"## {pace.title}", "", pace.what, "", *lines, ""]))
    return "\n".join(parts)


def take() -> None:
    """Measure all, and write it down after each row."""
    peers = [report.venv_of(pace.peer) for pace in PACES]
    versions = {name: venvs.versions(name) for name in peers}  # nothing is installed between turns
    versions |= {"here": {name: version(name) for name in ("rondel", "jax", "gymnasium", "ray")}}
    record = {"machine": report.machine(), "versions": versions, "seconds": SECONDS}
    quiet, figures = Quiet(), []
    for actors, env, pace in itertools.product(ACTORS, ENVS, PACES):
        figures.append(measure(pace, env, actors, quiet))
        print(f"{pace.title} {line(figures[-1])}", flush=True)
        told = json.dumps(record | {"figures": [f._asdict() for f in figures]}, indent=1)
        FIGURES.write_text(told + "\n")
        write()


def write() -> None:
    PAGE.write_text(page(load()))


def load() -> list[Figure]:
    return [Figure(**figure) for figure in json.loads(FIGURES.read_text())["figures"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--report", action="store_true", help="only write the tables again")
    write() if parser.parse_args().report else take()


if __name__ == "__main__":
    main()
