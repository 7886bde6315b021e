"""Kill anything, lose nothing: faults of all kinds against plans, in real processes.

    python benchmarks/reliability/run.py                     kills and stops, on both backends
    python benchmarks/reliability/run.py --write             into results.md beside it, row by row
    python benchmarks/reliability/run.py kill --only ray     one fault, on one backend
    python benchmarks/reliability/run.py cost                the cost of snapshots, without faults
    python benchmarks/reliability/run.py soak --minutes 30   random faults for a long time

A fault strikes a random process of the run, about once a second for a minute (or until the run is
over). In a soak it does so every three seconds, on Ray every ten: on a busy machine copies take
that long to start, and a run that is struck more often makes no progress (`--every`).

Then the run finishes, and is compared with an undisturbed one: the learner must be equal in every
bit, and the number of steps too, where the plan is deterministic and the environment's state can
be saved. Under any plan every lane is followed step by step (tally.py) and every process is
looked for afterwards (census.py). A run without a round for minutes is a hang, which ends all
with exit code 3. Other failures are printed, the next run starts, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import logging
import time
import traceback
from collections.abc import Sequence

import page
import soak
from cases import CASES, Case, deaths_in, result_of, undisturbed
from census import Census
from chaos import LIMIT, Chaos, Watchdog
from cost import HEAD as COST_HEAD
from cost import SECONDS, cost
from tally import Tally

HEAD = ["| fault | run | on | strikes | outcome | took |", "|---|---|---|---|---|---|"]
_DEADLINE = {"kill": 60.0, "stop": 30.0}  # seconds: on Ray only it finds what was stopped


def strike(case: Case, on: str, fault: str, seconds: float) -> str:
    """A row of the table."""
    wanted = undisturbed(case) if case.exact else None
    census, began = Census(), time.monotonic()
    with Watchdog(LIMIT[on], census) as dog:
        with case.start(on, deadline=_DEADLINE[fault]) as run:
            tally = Tally(run)
            with Chaos(run, census, {fault: 1}, seconds) as chaos:
                for _ in run.rounds():
                    dog.heard()
            census.look()
            census.check(run)
            got, value, deaths = result_of(run), run.return_mean or 0.0, deaths_in(run)
            wrong = [tally.verdict(run, case.exact, deaths)]
        left, _ = census.left()
    wrong += [wanted.differs_from(got)] if wanted else []
    wrong += [f"a return of {value} is below {case.goal}"] if value < case.goal else []
    wrong += [f"{left} are left"] if left else []
    wrong += [f"{census.strangers} were not followed"] if census.strangers else []
    wrong += chaos.errors
    if any(wrong):
        raise AssertionError("; ".join(filter(None, wrong)))
    outcome = "bit-equal" if wanted else "each step counted once"
    spent = time.monotonic() - began
    return (
        f"| {fault} | {case.name} | {on} | {chaos.strikes.total()} strikes, {deaths} restarts "
        f"| {outcome}, {run.steps:,} steps, return {value:.0f}, {len(left)} processes left "
        f"| {spent:.0f} s |"
    )


def tables(
    faults: Sequence[str], cases: Sequence[Case], backends: Sequence[str], args: argparse.Namespace
) -> int:
    """Row by row -> how many went wrong."""
    failed = 0
    for what in faults:
        for on in backends:
            for case in cases:
                try:
                    if what == "cost":
                        row = cost(case, on, args.seconds or SECONDS)
                    else:
                        row = strike(case, on, what, args.seconds or 60.0)
                except Exception:
                    failed += 1
                    print(f"FAILED: {what}, {case.name}, {on}", flush=True)
                    traceback.print_exc()
                    continue
                print(row, flush=True)
                if args.write:
                    page.merge(what, COST_HEAD if what == "cost" else HEAD, row)
    return failed


def soaks(case: Case, backends: Sequence[str], args: argparse.Namespace) -> int:
    """One backend after the other -> how many checks went wrong."""
    failed = 0
    for on in backends:
        told = 0

        def tell(lines: list[str], on: str = on) -> None:
            nonlocal told
            print(*lines[told:], sep="\n", flush=True)
            told = len(lines)
            if args.write:
                page.write(f"soak on {on}", lines)

        try:
            every = args.every or soak.EVERY[on]
            failed += sum(check.wrong for check in soak.soak(case, on, args.minutes, every, tell))
        except Exception:
            failed += 1
            traceback.print_exc()
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    whats = ["faults", "kill", "stop", "cost", "soak"]
    parser.add_argument("what", nargs="?", default="faults", choices=whats)
    parser.add_argument("--only", choices=["processes", "ray"], help="one backend")
    parser.add_argument("--case", type=int, choices=range(len(CASES)), help="one of the cases")
    parser.add_argument(
        "--seconds", type=float, help="of strikes (60), or of what keeping costs (240)"
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="of soaking")
    parser.add_argument("--every", type=float, help="seconds between the strikes of a soak")
    parser.add_argument("--write", action="store_true", help="write the tables to results.md")
    args = parser.parse_args()
    logging.getLogger("rondel").setLevel(logging.ERROR)
    backends = [args.only] if args.only else ["processes", "ray"]
    cases = CASES if args.case is None else CASES[args.case : args.case + 1]
    if args.what == "soak":
        failed = soaks(cases[0], backends, args)
    elif args.what == "cost":
        failed = tables(["cost"], cases[:2], backends, args)
    else:
        faults = ["kill", "stop"] if args.what == "faults" else [args.what]
        failed = tables(faults, cases, backends, args)
    if failed:
        raise SystemExit(f"{failed} went wrong.")


if __name__ == "__main__":
    main()
