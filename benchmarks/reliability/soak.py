"""Random kills, stops and lost nodes for a long time: nothing grows, remains or hangs."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from cases import Case, Result, deaths_in, result_of, undisturbed
from census import Census, Remains, Sizes, remains, sizes
from chaos import LIMIT, Chaos, Nodes, Watchdog
from tally import Tally

HEAD = [
    "| minute | steps | kills | stops | nodes lost | restarts | driver, MiB | copies, MiB "
    "| others, MiB | shared, MiB | descriptors: driver, a copy | threads | longest wait, s |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
]
_ROWS = 10
_SAMPLE = 5.0  # seconds between two looks at the memory; a row has the median of them
_FEWEST = 20  # samples of a third by which can be judged: copies that have just begun have little
_GROWTH = 1.25  # that of memory which is still flat, from the first third of a soak to the last
_SPARE = 16  # descriptors, threads, MiB: a leak would be one for every restart
_COUNTS = {
    "descriptors of the driver": "descriptors",
    "descriptors of a copy": "most",
    "threads of the driver": "threads",
}
_REHEARSAL = 20  # rounds
_DEADLINE = {"processes": 60.0, "ray": 40.0}
# seconds between strikes, about: a run that is struck quicker than it starts gets nowhere
EVERY = {"processes": 3.0, "ray": 10.0}
# a stop is found after five seconds, on Ray after the deadline
_ODDS = {"processes": {"kill": 40, "stop": 3}, "ray": {"kill": 30, "stop": 3, "node": 3}}


class Check(NamedTuple):
    what: str
    wrong: bool
    said: str

    def __str__(self) -> str:
        return f"| {self.what} | {'**wrong**: ' if self.wrong else ''}{self.said} |"


class Course(NamedTuple):
    """What was seen during the run."""

    rows: list[str]
    samples: list[Sizes]
    checks: list[Check]


@contextmanager
def cluster(on: str) -> Iterator[Nodes | None]:
    nodes = Nodes() if on == "ray" else None
    try:
        yield nodes
    finally:
        if nodes:
            nodes.close()


def soak(
    case: Case, on: str, minutes: float, every: float, tell: Callable[[list[str]], None]
) -> list[Check]:
    """The checks at the end. `tell` gets all lines so far whenever there are new ones."""
    census = Census()
    case = case._replace(steps=10**12)
    course = Course([*HEAD], [], [])
    title = f"{case.name}, {minutes:g} minutes, a strike about every {every:g} s:"

    def say() -> None:
        checks = ["", "| checked | outcome |", "|---|---|", *map(str, course.checks)]
        tell([title, "", *course.rows, *(checks if course.checks else [])])

    with Watchdog(LIMIT[on], census) as dog:
        with cluster(on) as nodes:
            more = {"deadline": _DEADLINE[on]} | ({"address": nodes.address} if nodes else {})
            with case.start(on, **more) as run:  # what is made once is there before
                for _, _ in zip(range(_REHEARSAL), run.rounds(), strict=False):
                    dog.heard()
            before = remains()
            dog.rested()
            dog.longest = 0.0
            try:
                with case.start(on, **more) as run:
                    tally = Tally(run)
                    _endure(run, census, on, minutes, every, nodes, dog, course, say)
                    result, value = result_of(run), run.return_mean or 0.0
                    wrong = tally.verdict(run, case.exact, deaths_in(run))
                    steps = f"each of {run.steps:,} was counted once"
                    course.checks.append(Check("steps", bool(wrong), wrong or steps))
            except BaseException as error:
                course.checks.append(Check("end", True, f"{type(error).__name__}: {error}"))
                say()
                raise
            del run, tally
            after = remains()
            dog.rested()
        course.checks.extend(_left(census, before, after))
        dog.rested()
    longest = f"the longest wait for a round took {dog.longest:.1f} s of {dog.limit:g} allowed"
    course.checks.append(Check("hangs", dog.longest > dog.limit, f"0: {longest}"))
    goal = f"{value:.0f}, of at least {case.goal:g}"
    course.checks.append(Check("return at the end", value < case.goal, goal))
    course.checks.extend(_flat(course.samples))
    if case.exact:
        course.checks.append(_same(case, result))
    say()
    return course.checks


def _endure(
    run: Any,
    census: Census,
    on: str,
    minutes: float,
    every: float,
    nodes: Nodes | None,
    dog: Watchdog,
    course: Course,
    say: Callable[[], None],
) -> None:
    """Train for some minutes under strikes."""
    began, samples, sampled, told = time.monotonic(), course.samples, 0.0, 0
    a_row = 60 * minutes / _ROWS  # seconds
    due = began
    with Chaos(run, census, _ODDS[on], math.inf, every, nodes) as chaos:  # to the last round
        dog.about = lambda: f"{dict(chaos.strikes)}, {deaths_in(run)} restarts."
        for report in run.rounds():
            dog.heard()
            if nodes and nodes.add():
                dog.rested()
            now = time.monotonic()
            if now >= due or now - sampled >= _SAMPLE:
                samples.append(sizes(run, census))
                sampled = now
            if now >= due:
                due += a_row * ((now - due) // a_row + 1)
                some, told = samples[told:], len(samples)
                minute = (now - began) / 60
                course.rows.append(_row(minute, report, chaos, deaths_in(run), some, dog.recent))
                say()
                dog.recent = 0.0
            if now - began >= 60 * minutes:
                break
            dog.rested()
    quiet = time.monotonic() - chaos.last
    late = f", {nodes.late} nodes were late" if nodes else ""
    said = f"{chaos.strikes.total()} strikes, the last {quiet:.0f} s before the end{late}"
    if chaos.errors:
        print(*chaos.errors, sep="\n", flush=True)
        said += f"; {len(chaos.errors)} went wrong: {chaos.errors[0].splitlines()[-1]}"
    wrong = bool(chaos.errors) or quiet > 10 * every
    course.checks.append(Check("faults", wrong, said))


def _row(
    minute: float, report: Any, chaos: Chaos, deaths: int, some: list[Sizes], waited: float
) -> str:
    driver, copies, others, shared, *_ = (
        statistics.median(each) for each in zip(*some, strict=True)
    )
    kills, stops, nodes = (chaos.strikes[kind] for kind in ("kill", "stop", "node"))
    last = some[-1]
    return (
        f"| {minute:.1f} | {report.steps:,} | {kills} | {stops} | {nodes} | {deaths} "
        f"| {driver:.0f} | {copies:.0f} | {others:.0f} | {shared:.1f} "
        f"| {last.descriptors}, {max(each.most for each in some)} | {last.threads} | {waited:.1f} |"
    )


def _left(census: Census, before: Remains, after: Remains) -> Iterator[Check]:
    left, continued = census.left()
    said = f"{len(left)} of {len(census.seen)} that there were"
    if continued:
        said += f" ({continued} were stopped, and ended when they were continued)"
    if left:
        print(*left, sep="\n", flush=True)
    if census.strangers:
        said += f"; {len(census.strangers)} copies were not followed"
    yield Check("processes left", bool(left or census.strangers), said)
    for name in Remains._fields:
        was, now = getattr(before, name), getattr(after, name)
        spare = _SPARE if name in ("descriptors", "threads") else 0
        # others on this machine have entries in /dev/shm too
        wrong = now > was + spare and name != "entries"
        what = "entries of /dev/shm" if name == "entries" else f"{name} of the driver"
        yield Check(what, wrong, f"{was} before, {now} after")


def _flat(samples: list[Sizes]) -> Iterator[Check]:
    """Checks of driver and copies; servers and Ray itself are in the table."""
    third = max(1, len(samples) // 3)

    def thirds(each: Callable[[Sizes], float]) -> tuple[float, float]:
        values = [each(sample) for sample in samples]
        return statistics.median(values[:third]), statistics.median(values[-third:])

    def check(what: str, early: float, late: float, most: float) -> Check:
        said = f"{early:.0f} in the first third, {late:.0f} in the last"
        return Check(f"{what}, while it ran", late > most and third >= _FEWEST, said)

    early, late = thirds(lambda sample: sample.driver)
    yield check("MiB of the driver", early, late, _GROWTH * early)
    early, late = thirds(lambda sample: sample.copies / max(1, sample.living))
    yield check("MiB of a copy", early, late, _GROWTH * early)
    early, late = thirds(lambda sample: sample.shared)
    yield check("MiB of shared memory", early, late, _GROWTH * early + _SPARE)
    for what, name in _COUNTS.items():
        early, late = thirds(lambda sample, name=name: getattr(sample, name))
        yield check(what, early, late, early + _SPARE)


def _same(case: Case, result: Result) -> Check:
    differs = result.differs_from(undisturbed(case._replace(steps=result.steps)))
    said = f"bit-equal to that of {result.rounds:,} rounds that nobody disturbed"
    return Check("learner", bool(differs), differs or said)
