"""What is decided about copies: tables of events, each race a row, by a clock that tests turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn

import pytest

from rondel.execution.backends.protocol import Lost, Restarts
from rondel.execution.backends.recovery.events import (
    Arrived,
    Coming,
    Died,
    End,
    Explained,
    FindCause,
    GiveUp,
    Inspect,
    Left,
    Looked,
    Missed,
    Moved,
    NobodyDied,
    Pause,
    Replied,
    Restart,
    RoundEnded,
    Sent,
    SnapshotsFailed,
    SnapshotsTaken,
    Started,
    StartFailed,
    TakeSnapshots,
    TurnAway,
    Warn,
    Withdrawn,
)
from rondel.execution.backends.recovery.policy import EPISODES, MOST_BYTES
from rondel.execution.backends.recovery.recovery import Recovery
from rondel.execution.backends.recovery.state import CopyState, RecoveryState
from rondel.execution.requests import KEEP, LEARN, MAKE, PRODUCE
from rondel.execution.telemetry.timeouts import Timeouts
from rondel.plan.parser import parse

pytestmark = pytest.mark.fault

# env and policy restart together; the learner is a unit of its own
ENV, POLICY, LEARNER = 0, 1, 2
NAMES, UNITS = ("env", "policy", "learner"), ((0, 1), (0, 1), (2,))
FIRST = EPISODES + 1  # the number of episodes after the first restart
KILLED = End(LEARNER, "was killed by SIGKILL", killed=True)
CRASHED = End(LEARNER, "was killed by SIGSEGV", action="step(3)")
GONE = "env is gone."
LATE = "env took no step within 9 s: its environment hangs."


def state(restarts: int = 20, **of_learner: Any) -> RecoveryState:
    """Three copies, all of which have arrived and worked, at time 0."""
    copies = [
        CopyState(name, unit, has_snapshots=name != "env", worked=True, progress=True)
        for name, unit in zip(NAMES, UNITS, strict=True)
    ]
    for name, value in of_learner.items():
        setattr(copies[LEARNER], name, value)
    return RecoveryState(copies, restarts, Timeouts(9.0, 60.0), time=0.0)


def after(machine: RecoveryState, events: Iterable[Any]) -> list[Any]:
    """What is done about the last of some events, warnings apart."""
    done: list[Any] = []
    for event in events:
        done = [one for one in machine.handle(event) if not isinstance(one, Warn)]
    return done


def ask(time: float, copy: int = LEARNER, request: Any = LEARN) -> list[Any]:
    """A copy has answered such a request before, and is sent another."""
    return [
        Sent(time, copy, request),
        Replied(time, copy, request),
        Sent(time, copy, request),
    ]


SILENT = (
    "No answer within 9 s from learner, asked to `learn`. It hangs, or needs a longer --deadline."
)
HANGS = Inspect(End(LEARNER, "did not answer `learn` within 9 s"))

TABLE = {
    "a death restarts the unit": (20, [Died(1, (KILLED,))], [Restart((2,), 0.0, FIRST)]),
    "an env takes its policy along": (
        20,
        [Died(1, (End(ENV, "exited with 3"),))],
        [Restart((0, 1), 0.0, FIRST)],
    ),
    "both die at once": (
        20,
        [Died(1, (End(ENV, "died"), End(POLICY, "died")))],
        [Restart((0, 1), 0.0, FIRST)],
    ),
    "two units die at once": (
        20,
        [Died(1, (KILLED, End(POLICY, "died")))],
        [Restart((2, 0, 1), 0.0, FIRST)],
    ),
    "no restarts allowed": (0, [Died(1, (KILLED,))], [GiveUp("learner was killed by SIGKILL.")]),
    "a first request may take longer": (20, [Sent(0, 2, LEARN), Looked(9.5)], []),
    "a later one is late": (20, [*ask(0), Looked(9), Looked(9.5)], [HANGS]),
    "not if it waits for others": (20, [*ask(0), Looked(9, waiting=[2]), Looked(9.5)], []),
    "another answers meanwhile": (
        20,
        [*ask(0), *ask(8, POLICY, PRODUCE), Looked(9.5)],
        [HANGS],
    ),
    "also if it was sent more meanwhile": (
        20,
        [*ask(0), Sent(5, 2, LEARN), Looked(9), Looked(9.5)],
        [HANGS],
    ),
    "the next request is its first of a kind": (
        20,
        [*ask(0), Sent(0, 2, KEEP), Replied(1, 2, LEARN), Looked(10), Looked(10.5)],
        [],
    ),
    "the answer came just before": (20, [*ask(0), Replied(9.2, 2, LEARN), Looked(9.5)], []),
    "the rest was withdrawn": (
        20,
        [*ask(0), Sent(0, 2, LEARN), Withdrawn(1, 2, 0), Looked(9.5)],
        [],
    ),
    "late, and no restarts": (0, [*ask(0), Looked(9), Looked(9.5)], [GiveUp(SILENT, late=True)]),
    "the driver was stopped, with its clock running": (20, [*ask(0), Looked(700)], []),
    "and an answer comes first": (
        20,
        [*ask(0), *ask(0, POLICY, PRODUCE), Replied(700, 1, PRODUCE), Looked(700)],
        [],
    ),
    "from then on it counts": (
        20,
        [*ask(0), Looked(700), Looked(705), Looked(709.5)],
        [HANGS],
    ),
    "stopped for a moment": (20, [Looked(1, stopped=[2]), Looked(2), Looked(6.5, stopped=[2])], []),
    "stopped for long": (
        20,
        [Looked(1, stopped=[2]), Looked(6.5, stopped=[2])],
        [Inspect(End(LEARNER, "was stopped for 5 s", killed=True))],
    ),
    "stopped, and no restarts: only lateness counts": (
        0,
        [Looked(1, stopped=[2]), Looked(6.5, stopped=[2])],
        [],
    ),
    "one that missed another: who is dead?": (
        20,
        [Missed(1, POLICY, GONE, late=False)],
        [FindCause(Missed(1, POLICY, GONE, late=False))],
    ),
    "nobody: it is replaced itself": (
        20,
        [Missed(1, POLICY, GONE, late=False, searched=True)],
        [Inspect(End(POLICY, "stopped, because env is gone"))],
    ),
    "one that missed a late one is replaced with it": (
        20,
        [Missed(1, POLICY, LATE, late=True)],
        [Inspect(End(POLICY, "stopped, because env took no step within 9 s"))],
    ),
    "missed a late one, and no restarts": (
        0,
        [Missed(1, POLICY, LATE, late=True)],
        [GiveUp(LATE, late=True)],
    ),
    "results are lost: ask again": (20, [NobodyDied(1, "x")], [Pause(0.5)]),
    "again and again": (
        20,
        [NobodyDied(float(t), "x") for t in range(1, 63)],
        [GiveUp("Results keep getting lost, but no copy has died: x")],
    ),
    "but not if answers come between": (
        20,
        [
            *[NobodyDied(float(t), "x") for t in range(1, 60)],
            *ask(60),
            NobodyDied(61.0, "x"),
            NobodyDied(62.0, "x"),
        ],
        [Pause(0.5)],
    ),
    "nor if a copy was restarted between": (
        20,
        [
            *[NobodyDied(float(t), "x") for t in range(1, 60)],
            *[Died(60, (KILLED,)), Started(60, [2]), NobodyDied(61.0, "x"), NobodyDied(62.0, "x")],
        ],
        [Pause(0.5)],
    ),
    "its policy's progress is an environment's": (
        20,
        [
            *[Died(1, (End(ENV, "died"),)), Started(1, [0, 1])],
            *[Sent(2, 1, PRODUCE), Replied(2, 1, PRODUCE), Died(3, (End(ENV, "died"),))],
        ],
        [Restart((0, 1), 0.0, FIRST + 1)],
    ),
    "a start that hangs, of one that worked before": (
        20,
        [StartFailed(2, 2, "was not there within 60 s", True, "No answer.")],
        [Pause(0.0)],
    ),
    "a start that fails": (
        20,
        [Died(1, (KILLED,)), Started(1, [2]), StartFailed(2, 2, "died", False, "It died.")],
        [Pause(0.2)],
    ),
    "a start that fails, and no restarts": (
        0,
        [StartFailed(2, 2, "died", False, "It died.")],
        [GiveUp("It died.")],
    ),
    "what it was doing is known later": (
        20,
        [Died(1, (KILLED,)), Explained(2, 2, "learner", 0, "step(3)", "crashed")],
        [],
    ),
    "and that it always is at one action": (
        20,
        [
            *[Died(t, (CRASHED,)) for t in (1, 2)],
            *[Started(2, [2]), Died(3, (End(2, "died"),))],
            Explained(4, 2, "learner (process 7)", 2, "step(3)", "crashed"),
        ],
        [],
    ),
    "a copy that could not start is turned away": (
        20,
        [Left(0, 2), Coming(1, 2), Died(2, (KILLED,))],
        [TurnAway(2)],
    ),
    "so is one that is late to come": (
        20,
        [Left(0, 2), Coming(1, 2), Sent(1, 2, MAKE), *[Looked(float(t)) for t in range(5, 70, 5)]],
        [Inspect(End(LEARNER, "did not answer `make` within 60 s"))],
    ),
    "nobody waits for one that was turned away": (
        20,
        [
            *[Left(0, 2), Coming(1, 2), Sent(1, 2, MAKE), Died(2, (KILLED,))],
            *[Looked(float(t)) for t in range(5, 70, 5)],
        ],
        [],
    ),
    "once it has arrived it is replaced": (
        20,
        [Left(0, 2), Coming(1, 2), Arrived(2, 2, "learner (process 9)"), Died(3, (KILLED,))],
        [Restart((2,), 0.0, FIRST + 1)],
    ),
    "those that move are healthy": (20, [Moved(1, (2,))], [Restart((2,), 0.0, FIRST)]),
}


@pytest.mark.parametrize("case", TABLE)
def test_what_is_done(case: str) -> None:
    restarts, events, instructions = TABLE[case]
    assert after(state(restarts), events) == instructions


def test_one_that_hangs_before_it_ever_worked_is_given_up() -> None:
    machine = state(20, worked=False)
    looks = [Looked(float(t)) for t in range(5, 63, 5)]
    (end,) = after(machine, [Sent(0, 2, MAKE), *looks, Looked(60.5)])
    assert isinstance(end, GiveUp)
    assert end.late
    assert "from learner, asked to `make`" in end.sentence


def test_one_that_never_worked_is_given_up_after_two_restarts() -> None:
    machine = state(20, worked=False, progress=False)
    for t in range(2):
        after(machine, [Died(t, (KILLED,)), Started(t, [2])])
    (end,) = after(machine, [Died(3, (KILLED,))])
    assert isinstance(end, GiveUp)
    assert "made no progress in 2 restarts" in end.sentence


def test_one_that_hangs_while_it_first_starts_is_given_up() -> None:
    event = StartFailed(2, 2, "was not there within 60 s", True, "No answer within 60 s.")
    assert after(state(20, worked=False), [event]) == [GiveUp("No answer within 60 s.", late=True)]


def test_one_that_is_late_to_come_is_turned_away_for_longer_each_time() -> None:
    machine = state()
    for bar in (10.0, 20.0, 40.0):
        (done,) = after(machine, [Left(0, 2), Coming(0, 2), Died(1.0, (KILLED,))])
        assert done == TurnAway(2)
        assert machine.copies[2].may_come_at == 1.0 + bar
    after(machine, [Coming(2, 2), Arrived(2, 2, "learner"), Left(3, 2), Coming(3, 2)])
    after(machine, [Died(4.0, (KILLED,))])
    assert machine.copies[2].may_come_at == 14.0


def test_three_crashes_at_one_action_of_which_two_are_explained_late() -> None:
    """On Ray an action is only known once the next actor has read it."""
    machine = state()
    for death in range(3):
        after(machine, [Died(death, (End(2, "died", killed=True),)), Started(9, [2])])
        done = after(machine, [Explained(9, 2, "learner (process 7)", death, "step(3)", "crashed")])
    (end,) = done
    assert isinstance(end, GiveUp)
    assert end.sentence.startswith("learner (process 7) crashed in step(3), for the third time")


def test_what_is_too_large_is_not_restarted() -> None:
    (end,) = after(state(20, too_large=True), [Died(1, (KILLED,))])
    assert isinstance(end, GiveUp)
    assert "The state of learner is over 2 GiB, so no snapshot was kept." in end.sentence


def test_snapshots_are_taken_when_due_and_void_when_someone_dies() -> None:
    machine = state()
    assert after(machine, [RoundEnded(0.5)]) == []
    assert after(machine, [RoundEnded(1.5)]) == [TakeSnapshots(0, wait=False)]
    assert after(machine, [RoundEnded(9.0)]) == []  # they are under way
    after(machine, [Sent(9, 2, KEEP), Replied(9, 2, KEEP, seconds=0.1), Died(9, (KILLED,))])
    assert machine.snapshot == 1  # number 0 is void
    assert after(machine, [RoundEnded(9.1)]) == [TakeSnapshots(1, wait=False)]
    after(machine, [Sent(9.2, 2, KEEP), Replied(9.2, 2, KEEP, seconds=0.1), SnapshotsTaken(9.2)])
    assert after(machine, [RoundEnded(29.0)]) == []  # 0.1 s were taken: 20 s without
    assert after(machine, [RoundEnded(29.5)]) == [TakeSnapshots(1, wait=False)]
    assert after(machine, [SnapshotsFailed(29.6), RoundEnded(29.6)]) == [TakeSnapshots(2, False)]


def test_messages_that_came_while_snapshots_were_taken_still_count() -> None:
    machine = state()
    sent = [Sent(0, 2, LEARN), Replied(0, 2, LEARN, nbytes=2 * MOST_BYTES)]
    assert after(machine, [*sent, RoundEnded(0.1)]) == [TakeSnapshots(1, wait=True)]
    after(machine, [*sent, SnapshotsTaken(0.2, too_large=[2])])
    assert machine.message_bytes == 2 * MOST_BYTES
    assert machine.copies[2].too_large


def test_without_restarts_no_snapshot_is_taken() -> None:
    assert after(state(restarts=0), [RoundEnded(9.0, now=True)]) == []


def test_times_in_which_several_are_away_count_once() -> None:
    machine = state()
    assert machine.restarts_until(5.0) == Restarts(0, 0.0)
    after(machine, [*ask(8, POLICY, PRODUCE), Died(10, (End(ENV, "died"), End(POLICY, "died")))])
    after(machine, [Started(10, [0, 1]), Died(11, (KILLED,)), Started(11, [2])])
    assert machine.restarts_until(12.0) == Restarts(2, 4.0)  # since it was last heard of
    after(machine, [Sent(12, 1, PRODUCE), Replied(12, 1, PRODUCE, replayed=True)])
    after(machine, [Sent(13, 2, LEARN), Replied(13, 2, LEARN)])
    assert machine.restarts_until(14.0) == Restarts(2, 6.0)  # replaying is nothing new
    after(machine, [Sent(14, 1, PRODUCE), Replied(14, 1, PRODUCE)])
    assert machine.restarts_until(20.0) == Restarts(2, 6.0)


def test_the_log_tells_what_came_before_the_end() -> None:
    machine = state(restarts=1)
    after(machine, [*ask(0), SnapshotsTaken(0.5, [0]), *ask(1), SnapshotsTaken(1.5, [0])])
    after(machine, [Looked(9.5), RoundEnded(9.6, now=True), Looked(10.5)])
    after(machine, [Died(10.5, (HANGS.end,)), Started(10.5, [2])])
    after(machine, [Arrived(11, LEARNER, "learner (process 9)")])
    assert machine.log.troubles == 1  # the death; that alone says no more than the sentence
    after(machine, [Missed(12, POLICY, GONE, late=False), Died(12.5, (KILLED, CRASHED))])
    assert machine.log.troubles == 2
    assert str(machine.log).splitlines() == [
        "What happened to copies before this run ended:",
        "    -11.0 s  Snapshots were taken; too large: env",
        "     -2.0 s  No answer came for a while -> replace it",
        "     -2.0 s  learner did not answer `learn` within 9 s -> restart learner",
        "     -2.0 s  Started learner",
        "     -1.5 s  learner (process 9) is there",
        "     -0.5 s  policy missed another copy: env is gone. -> look for a dead copy",
        "      0.0 s  learner (process 9) was killed by SIGKILL; learner (process 9) was killed by "
        "SIGSEGV in step(3) -> end the run",
    ]


def test_the_log_has_copies_that_come_and_go_and_a_bound() -> None:
    machine = state()
    after(machine, [Left(0, 2), Coming(1, 2), Died(2, (KILLED,)), Moved(3, (1,))])
    after(machine, [StartFailed(4, 1, "was not there", False, "It died."), Withdrawn(5, 0, 0)])
    after(machine, [NobodyDied(6, "x"), SnapshotsFailed(7)])
    after(machine, [Explained(8, 1, "policy (process 7)", 0, "step(3)", "crashed")])
    assert [said for _, said in machine.log.notes] == [
        "learner has left",
        "learner is coming",
        "learner was killed by SIGKILL -> go on without learner",
        "There is room again for policy -> restart policy",
        "policy was not there -> try again",
        "env can't answer requests that wait for lost results",
        "Results are lost: x -> try again",
        "Snapshots were lost on their way to the driver",
        "policy (process 7) crashed in step(3)",
    ]
    for t in range(300):
        after(machine, [Arrived(t, t % 2, "one")])
        after(machine, [SnapshotsFailed(t)])
    assert len(machine.log.notes) == 200


@pytest.mark.parametrize("restarts", [0, 1])
def test_the_log_is_shown_when_a_run_fails_after_more_than_one_trouble(
    restarts: int, caplog: pytest.LogCaptureFixture
) -> None:
    def end(error: BaseException) -> NoReturn:
        raise error

    obey = {Restart: lambda _: None}
    recovery = Recovery(parse("actor | learner"), restarts, Timeouts(9, 60), obey, end)
    dead = (End(1, "was killed by SIGKILL", killed=True),)
    for _ in range(restarts):
        recovery.report(Died, dead)
    with pytest.raises(Lost, match="learner was killed by SIGKILL"):
        recovery.report(Died, dead)
    shown = [line for line in caplog.messages if line.startswith("What happened to copies")]
    assert [text.count("learner was killed by SIGKILL") for text in shown] == [2] * restarts


def test_an_event_without_a_rule_is_shown_with_what_came_before() -> None:
    class Strange(NamedTuple):
        time: float

    machine = state()
    after(machine, [Died(1, (KILLED,))])
    with pytest.raises(TypeError, match=r"no rule for the event Strange\(time=2\)") as caught:
        after(machine, [Strange(2)])
    (history,) = caught.value.__notes__
    assert "learner was killed by SIGKILL -> restart learner" in history
