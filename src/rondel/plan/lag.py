"""The two decisions of free mode, which keep the lag within its bound without a deadlock.

A round is n rollouts, whichever copies made them. The learner at version v takes the n oldest of
those that wait (not the first to arrive), learns from them and is at version v + 1. A rollout acts
with the learner's version u at its start, and is v - u versions old when it is learned from: at
most k.
"""

from __future__ import annotations

from collections.abc import Sequence

# Proof. Order the rollouts that are not learned from yet, oldest first. Rollout i is learned from
# i // n rounds from now, so both decisions keep the invariant `v + i // n - u[i] <= k` for all i.
# A start appends u = v, where i < n * (k + 1). Where nothing may start there are n * (k + 1)
# rollouts, and once all have arrived the learner may take the n oldest, which only moves the others
# n places up. (The obvious rule, to look at the oldest alone, lets so many grow old together that
# they cannot all be learned from in time.)


def may_start(outstanding: int, n: int, k: int) -> bool:
    """May another rollout start, with the newest weights?

    `outstanding` counts rollouts that wait for the learner and rollouts that are not finished.
    """
    return outstanding < n * (k + 1)


def may_learn(v: int, queued: Sequence[int], flying: Sequence[int], n: int, k: int) -> bool:
    """May the learner, at version v, take the n oldest of those that wait?

    `queued` and `flying` are the versions with which waiting and unfinished rollouts acted. The
    learner waits for an unfinished one that would otherwise become too old.
    """
    rest = sorted([*sorted(queued)[n:], *flying])
    return len(queued) >= n and all(v + 1 + i // n - u <= k for i, u in enumerate(rest))


def may_learn_beside(
    v: int, queued: Sequence[int], flying: Sequence[int], learning: Sequence[int], k: int
) -> bool:
    """`may_learn` where rollouts are learned from one by one, several at the same time.

    `learning` are the versions of those in progress. Any of them may finish last, and all others
    come after them.
    """
    busy = len(learning) + 1
    rest = sorted([*sorted(queued)[1:], *flying])
    taken = [*learning, *sorted(queued)[:1]]
    return (
        len(queued) >= 1
        and all(v + busy - 1 - u <= k for u in taken)
        and all(v + busy + i - u <= k for i, u in enumerate(rest))
    )
