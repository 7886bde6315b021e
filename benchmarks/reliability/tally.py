"""Is every step counted, and none twice? Read off the rows that the driver counts.

Every row has the length of its episode so far. In a lane these grow by one; after an episode's end
there is a 0, the row that only resets. Each copy's part of a round continues all of its lanes where
the last part ended. So a part or a row that is lost, or comes twice, breaks a lane.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class Tally:
    """Follows every lane of a run from its first round on; `wrong` says what was broken first.

    Environments that can't be put back begin new episodes when their copy is started again: all
    lanes of a part are at length 1 then, which is counted in `anew`.
    """

    def __init__(self, run: Any) -> None:
        ring = run.ring
        self._shape = (ring.task.lanes, ring.task.algorithm.rollout)
        self._free = ring.plan.free  # then a round has parts of whoever was quicker
        parts = len(ring.policy)
        self._next = np.ones((parts, self._shape[0] // parts), int)  # what each lane must say next
        self._push, ring._push = ring._push, self._see
        self.rounds = self.steps = self.anew = 0
        self._whole = self._cut = 0  # steps of episodes that ended, and of those cut off
        self.wrong = ""

    def _see(self, recent: Any, outcome: Any) -> Any:
        """Follow a round's rows [B, T] before they are counted."""
        length, done, valid = (
            np.asarray(x) for x in (outcome.episode_length, outcome.done, outcome.valid)
        )
        if length.shape != self._shape:
            self._say(f"there are {length.shape} rows, not {self._shape}")
        elif not np.array_equal(valid, length > 0):
            self._say("a row counts that only resets, or one does not that is a step")
        else:
            after = np.where(done, 0, length + 1)
            if not np.array_equal(length[:, 1:], after[:, :-1]):
                self._say("rows do not follow each other")
            parts = np.split(length[:, 0], len(self._next)), np.split(after[:, -1], len(self._next))
            for i, (first, last) in enumerate(zip(*parts, strict=True)):
                self._follow(i, first, last)
        self.rounds += 1
        self.steps += int(valid.sum())
        self._whole += int(length[done].sum())
        return self._push(recent, outcome)

    def _follow(self, part: int, first: np.ndarray, last: np.ndarray) -> None:
        at = range(len(self._next)) if self._free else (part,)
        before = next((i for i in at if np.array_equal(self._next[i], first)), None)
        if before is None and not self._free and (first == 1).all():
            self.anew += 1
            self._cut += int(np.maximum(self._next[part] - 1, 0).sum())
            before = part
        if before is None:
            self._say(f"part {part} does not go on where one has ended")
            before = part
        self._next[before] = last

    def _say(self, what: str) -> None:
        self.wrong = self.wrong or f"round {self.rounds}: {what}"

    def verdict(self, run: Any, exact: bool, deaths: int) -> str:
        """What is wrong with the steps of a run at its end; "" if nothing is."""
        if self.wrong:
            return self.wrong
        running = int(np.maximum(self._next - 1, 0).sum())
        if self.steps != run.steps or self.rounds != run.ring.round:
            return f"{run.steps} steps were counted, and {self.steps} made"
        if self._whole + self._cut + running != self.steps:
            return f"episodes have {self._whole} + {self._cut} + {running} steps of {self.steps}"
        if self.anew > (0 if exact else deaths):
            return f"{self.anew} parts began new episodes, with {deaths} deaths"
        return ""
