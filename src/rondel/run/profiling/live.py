"""A run's load while it runs: what its copies have done since they were last looked at.

Copies say where their time goes with answers that they give anyhow (`Ring.glances`). So to look
costs some microseconds, and asks nobody.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import chain

from rondel.execution.backends import registry
from rondel.execution.telemetry.timing import TimingSummary, resident, since
from rondel.run.display.utilisation import PieceUtilisation, Utilisation
from rondel.run.profiling import user_code
from rondel.run.profiling.diagnosis import ROUNDS, costs_of, diagnose
from rondel.run.profiling.plan_alternatives import facts_of
from rondel.run.profiling.run_profile import Piece, put_together
from rondel.run.session.run import Run
from rondel.run.setup import jax_process

_FIRST = 1.0  # seconds until the first look, and between two where nothing was new
_SECONDS = 3.0  # of a window, or more: some rounds, in which every piece says something new


class LiveUtilisation:
    """The last seconds of a run."""

    def __init__(self, run: Run) -> None:
        self._run, self._about = run, facts_of(run.setup, run.ring.fused)
        self._since: dict[str, TimingSummary] = {}  # where the window began, by who says it
        self._round = 0  # and with which round
        self._due = time.monotonic() + _FIRST
        self._load: Utilisation | None = None

    def look(self) -> Utilisation | None:
        """The load of the window that ended last; None before the first has."""
        now = time.monotonic()
        if now < self._due:
            return self._load
        self._due = now + _FIRST
        ring, setup = self._run.ring, self._run.setup
        glances, driver = ring.glances(), ring.meter.glance()
        new = [[_less(said, self._since.get(said.who)) for said in piece] for piece in glances]
        lately = _less(driver, self._since.get(driver.who))
        seen = put_together(ring, self._about, new, lately)
        seen = replace(seen, rounds=ring.round - self._round)
        first = not self._since
        if not seen.pieces or not all(piece.shares for piece in seen.pieces):
            return self._load  # some have done nothing yet, or nothing but start
        if seen.rounds < ROUNDS and not first:
            return self._load
        self._since = {said.who: said for said in chain(*glances, [driver])}
        self._round = ring.round
        self._due = now + _SECONDS
        if first:  # what was done until all had started is like nothing that follows
            return None
        verdict, here = diagnose(seen, self._run.path, user_code.measuring(self._run)), resident()
        apart = registry.find(setup.options.on).own_process
        memory = [sum(said.resident for said in piece) if apart else 0 for piece in glances]
        held = dict(zip((piece.name for piece in ring.plan.pieces), memory, strict=True))
        pieces = tuple(_load(piece, held.get(piece.name, 0)) for piece in seen.pieces)
        plan, about = ring.plan, (verdict.bound, verdict.part, verdict.piece, verdict.text)
        self._load = Utilisation(
            pieces, *about, plan.lag, plan.free, here, jax_process.free_memory()
        )
        return self._load


def _less(said: TimingSummary, before: TimingSummary | None) -> TimingSummary:
    """What was spent since then."""
    if before is None:
        return said
    spent = tuple(since(said.spent, before.spent))
    return said._replace(seconds=said.seconds - before.seconds, spent=spent)


def _load(piece: Piece, memory: int) -> PieceUtilisation:
    costs = costs_of(piece)
    for share in piece.shares:
        if share.waits:
            name = f"waits for {share.kind}"
            costs[name] = costs.get(name, 0.0) + share.part
    parts = sorted(costs.items(), key=lambda part: -part[1])
    return PieceUtilisation(piece.name, piece.copies, piece.busy, tuple(parts), memory)
