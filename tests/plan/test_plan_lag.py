"""Free mode: the bound holds and nothing waits for ever, whatever finishes when."""

from collections import deque
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rondel.plan.lag import may_learn, may_learn_beside, may_start


class Free(NamedTuple):
    """A run in free mode: versions of the pieces that wait, and of those that are unfinished."""

    v: int = 0
    queued: tuple[int, ...] = ()  # in the order of arrival
    flying: tuple[int, ...] = ()  # in the order of starting

    def may_start(self, n, k):
        return may_start(len(self.queued) + len(self.flying), n, k)

    def may_learn(self, n, k):
        return may_learn(self.v, self.queued, self.flying, n, k)

    def start(self):
        return self._replace(flying=(*self.flying, self.v))

    def finish(self, i):
        rest = self.flying[:i] + self.flying[i + 1 :]
        return self._replace(queued=(*self.queued, self.flying[i]), flying=rest)

    def from_now(self):
        """The same state, with versions counted from the learner's, in a standard order."""
        queued, flying = (sorted(u - self.v for u in pieces) for pieces in self[1:])
        return Free(0, tuple(queued), tuple(flying))

    def learn(self, n):
        """How old the oldest piece is that is learned from, and what is then."""
        oldest = sorted(self.queued)
        return self.v - oldest[0], Free(self.v + 1, tuple(oldest[n:]), self.flying)


def every_state(n, k):
    """All states that can be reached, each with the next ones; a piece's version is -its age."""
    found, to_see = {}, deque([Free()])
    while to_see:
        state = to_see.popleft()
        if state in found:
            continue
        assert min((*state.queued, *state.flying), default=0) >= -k, state
        after = [state.start()] if state.may_start(n, k) else []
        after += [state.finish(i) for i in range(len(state.flying))]
        if state.may_learn(n, k):
            after.append(state.learn(n)[1])
        found[state] = [free.from_now() for free in after]
        to_see += found[state]
    return found


@pytest.mark.parametrize(
    ("n", "k"), [(1, 0), (1, 1), (1, 4), (2, 0), (2, 1), (2, 2), (3, 1), (3, 2)]
)
def test_no_schedule_breaks_the_bound_or_stops(n, k):
    """Every schedule there is, for small rounds."""
    for state, after in every_state(n, k).items():
        assert after, state
        # Not only may something start: were nothing to start any more, then what is there is
        # learned from, down to a part of a round.
        if not state.flying and len(state.queued) >= n:
            assert state.may_learn(n, k)


@settings(max_examples=300)
@given(
    n=st.integers(1, 6),
    k=st.integers(0, 5),
    workers=st.integers(1, 12),
    straggles=st.booleans(),
    choices=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 11)), min_size=60, max_size=60),
)
def test_random_schedules_keep_the_bound_and_go_on(n, k, workers, straggles, choices):
    """Each worker makes a piece at a time; a straggler, the oldest that flies, finishes only when
    nothing else can happen."""
    state = Free()
    for kind, which in choices:
        can = []
        if state.may_start(n, k) and len(state.flying) < workers:
            can.append("start")
        if len(state.flying) > straggles:
            can.append("finish")
        if state.may_learn(n, k):
            can.append("learn")
        what = can[kind % len(can)] if can else "finish the straggler"
        if what == "start":
            state = state.start()
        elif what == "finish":
            state = state.finish(straggles + which % (len(state.flying) - straggles))
        elif what == "learn":
            age, state = state.learn(n)
            assert 0 <= age <= k
        else:
            assert state.flying, f"nothing can happen any more: {state}"
            state = state.finish(0)


@given(n=st.integers(1, 6), k=st.integers(0, 5), eager=st.booleans())
def test_k_rounds_are_learned_without_a_straggler(n, k, eager):
    """One worker is stuck and others are quick; then it is awaited, and it is not too old."""
    state, learned = Free().start(), 0
    for _ in range(10 * n * (k + 1)):
        if state.may_learn(n, k) and (eager or not state.may_start(n, k)):
            state, learned = state.learn(n)[1], learned + 1
        elif state.may_start(n, k):
            state = state.start().finish(len(state.flying))
    assert not state.may_start(n, k)
    assert not state.may_learn(n, k)
    assert learned == k
    assert state.finish(0).may_learn(n, k)
    assert state.finish(0).learn(n)[0] == k


def test_without_lag_a_round_is_learned_when_it_is_whole():
    assert [may_start(outstanding, 2, 0) for outstanding in range(4)] == [True, True, False, False]
    assert not may_learn(5, [5], [5], 2, 0)
    assert may_learn(5, [5, 5], [], 2, 0)
    assert not may_learn(5, [5, 5], [5], 2, 0)  # that one would be a version old


def test_the_learner_waits_for_one_that_would_become_too_old():
    # At version 1 the piece of version 0 still flies; after another round it would be 2 old.
    assert not may_learn(1, [1], [0], 1, 1)
    assert may_learn(1, [1], [0], 1, 2)
    assert may_learn(1, [0, 1], [], 1, 1)


def test_those_behind_a_late_one_count_too():
    # n=1, k=1 at version 1: once 0 is learned, the two of version 1 are learned at 2 and at 3.
    assert may_learn(1, [0], [1], 1, 1)
    assert not may_learn(1, [0], [1, 1], 1, 1)


def test_the_order_of_arrival_would_break_the_bound():
    """Why the n oldest are taken: here 1 arrived before 0."""
    state = Free(1, queued=(1, 0))
    assert state.may_learn(1, 1)
    assert state.learn(1) == (1, Free(2, queued=(1,)))
    first_come = Free(2, queued=state.queued[1:])
    assert first_come.learn(1)[0] == 2  # beyond the lag of 1


@settings(max_examples=300)
@given(
    copies=st.integers(1, 5),
    lag=st.integers(0, 3),
    choices=st.lists(st.integers(0, 2**16), min_size=40, max_size=120),
)
def test_lessons_side_by_side_keep_the_bound_and_go_on(copies, lag, choices):
    """Each copy has one piece at a time, whose lesson may end before or after any other's."""
    k = copies * (lag + 1) - 1
    v, flying, queued, learning = 0, [], [], []
    for choice in choices:
        moves = []
        outstanding = len(flying) + len(queued) + len(learning)
        if outstanding < copies and may_start(outstanding, 1, k):
            moves.append("start")
        if may_learn_beside(v, queued, flying, learning, k):
            moves.append("teach")
        moves += ["land"] * bool(flying) + ["end"] * bool(learning)
        assert moves, "it waits for ever"
        move = moves[choice % len(moves)]
        pick = choice // len(moves)
        if move == "start":
            flying.append(v)
        elif move == "land":
            queued.append(flying.pop(pick % len(flying)))
        elif move == "teach":
            queued.sort()
            learning.append(queued.pop(0))
        else:
            assert v - learning.pop(pick % len(learning)) <= k
            v += 1
