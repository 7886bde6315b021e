"""The two decisions of free mode, which keep the lag within its bound and never wait for ever.

n pieces of experience make a round, whoever made them. The learner at version v takes the n
oldest that wait, not the first that came, learns from them, and is at version v + 1. A piece acts
with the version u that the learner has at the piece's start, and is v - u versions old when it is
learned from: at most k.
"""

from __future__ import annotations

from collections.abc import Sequence

# Why it holds. Put all pieces that are not learned from yet in order, the oldest first. Piece i is
# learned from i // n rounds from now, so both decisions keep `v + i // n - u[i] <= k` true for all
# i. A start adds u = v at the end, where i < n * (k + 1). Where nothing may start there are
# n * (k + 1) pieces, and once all have arrived the learner may take the n oldest, for this only
# moves the others n places up. (The obvious rule, to look at the oldest alone, lets so many become
# old together that they can't all be learned from in time.)


def may_start(outstanding: int, n: int, k: int) -> bool:
    """May another piece start, to act with the newest weights?

    `outstanding` counts those that wait for the learner and those that are not finished.
    """
    return outstanding < n * (k + 1)


def may_learn(v: int, queued: Sequence[int], flying: Sequence[int], n: int, k: int) -> bool:
    """May the learner, at version v, take the n oldest of those that wait?

    `queued` and `flying` are the versions with which the waiting and the unfinished pieces acted.
    If one that is late would become too old, the learner waits for it.
    """
    rest = sorted([*sorted(queued)[n:], *flying])
    return len(queued) >= n and all(v + 1 + i // n - u <= k for i, u in enumerate(rest))


def may_learn_beside(
    v: int, queued: Sequence[int], flying: Sequence[int], learning: Sequence[int], k: int
) -> bool:
    """`may_learn` where pieces are learned from one by one, several of them at the same time.

    `learning` are the versions of those that the learner is busy with. Any of them may be the last
    to be done, and all others come after them.
    """
    busy = len(learning) + 1
    rest = sorted([*sorted(queued)[1:], *flying])
    taken = [*learning, *sorted(queued)[:1]]
    return (
        len(queued) >= 1
        and all(v + busy - 1 - u <= k for u in taken)
        and all(v + busy + i - u <= k for i, u in enumerate(rest))
    )
