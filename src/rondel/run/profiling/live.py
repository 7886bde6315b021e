"""The load of a run while it runs: what its copies have done in the last seconds.

Copies send summaries with replies that they send anyhow (`Ring.latest_timings`), so a look costs
microseconds and no message.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import chain

from rondel.execution.backends import registry
from rondel.execution.telemetry.timing import TimingSummary, resident
from rondel.run.display.utilisation import PieceUtilisation, Utilisation
from rondel.run.profiling.diagnosis import ROUNDS, costs_of, diagnose
from rondel.run.profiling.run_profile import Piece, facts_of, put_together
from rondel.run.session.run import Run
from rondel.run.setup import jax_process

_FIRST = 1.0  # seconds until the first look, and between two where nothing was new
_SECONDS = 3.0  # of a window; longer if some piece has reported nothing new


class LiveUtilisation:
    """The last seconds of a run."""

    def __init__(self, run: Run) -> None:
        self._run, self._facts = run, facts_of(run.setup)
        self._begin: dict[str, TimingSummary] = {}  # of the window, by who reports
        self._round = 0  # with which the window began
        self._due = time.monotonic() + _FIRST
        self._load: Utilisation | None = None

    def look(self) -> Utilisation | None:
        """The load of the window that ended last; None before the first has."""
        now = time.monotonic()
        if now < self._due:
            return self._load
        self._due = now + _FIRST
        ring = self._run.ring
        latest, driver = ring.latest_timings(), ring.meter.summary()
        seen = put_together(ring, self._facts, latest, driver, self._begin)
        seen = replace(seen, rounds=ring.round - self._round)
        if not seen.pieces or not all(piece.shares for piece in seen.pieces):
            return self._load  # some have done nothing yet, or nothing but start
        first = not self._begin
        if seen.rounds < ROUNDS and not first:
            return self._load
        self._begin = {one.who: one for one in chain(*latest, [driver])}
        self._round, self._due = ring.round, now + _SECONDS
        if first:  # the time until all had started is like nothing that follows
            return None
        apart = registry.find(self._facts.on).own_process
        memory = {
            piece.name: sum(one.resident for one in told) if apart else 0
            for piece, told in zip(ring.plan.pieces, latest, strict=True)
        }
        verdict, plan = diagnose(seen), ring.plan
        self._load = Utilisation(
            tuple(_load(piece, memory.get(piece.name, 0)) for piece in seen.pieces),
            verdict.bound,
            verdict.part,
            verdict.piece.name,
            verdict.text.removeprefix("Bottleneck: "),
            plan.lag,
            plan.free,
            resident(),
            jax_process.free_memory(),
        )
        return self._load


def _load(piece: Piece, memory: int) -> PieceUtilisation:
    costs = costs_of(piece)
    for share in piece.shares:
        if share.waits:
            name = f"waits for {share.kind}"
            costs[name] = costs.get(name, 0.0) + share.part
    parts = sorted(costs.items(), key=lambda part: -part[1])
    return PieceUtilisation(piece.name, piece.copies, piece.busy, tuple(parts), memory)
