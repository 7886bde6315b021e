"""The plan: where the ring of stages is cut, and how many copies of each piece run.

Parsed, checked and printed here, as plain values; what carries the pieces out is `execution`.

>>> plan = parse("actor*8 | learner")
>>> plan.copies("env"), str(plan)
(8, 'actor*8 | learner')
"""

from rondel.plan.fit import check, settled
from rondel.plan.pieces import ORDER, STAGES, Piece
from rondel.plan.plan import Plan
from rondel.plan.presets import PRESETS
from rondel.plan.text import parse

__all__ = ["ORDER", "PRESETS", "STAGES", "Piece", "Plan", "check", "parse", "settled"]
