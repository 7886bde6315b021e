"""The backend of local processes: real ones, that really die."""

from __future__ import annotations

import os
import re
import signal
import sys
from contextlib import closing, nullcontext
from typing import Any, NoReturn

import jax
import pytest

from execution.backends import same, tiny
from execution.backends.remains import arena_sizes
from rondel.errors import RondelError
from rondel.execution.backends.inline import Inline
from rondel.execution.backends.lowering import Kind, Lowering
from rondel.execution.backends.processes.backend import Processes
from rondel.execution.backends.protocol import Lost
from rondel.execution.loop.ring import Ring
from rondel.execution.loop.sync_loop import Limits, run_rounds
from rondel.plan.parser import parse


@pytest.mark.parametrize(("name", "plan", "lag"), same.CASES)
def test_processes_equal_inline(name: str, plan: str, lag: int) -> None:
    same.assert_equals_inline(Processes(), name, plan, lag)


@pytest.mark.parametrize("plan", same.HOST_PLANS)
def test_processes_equal_inline_on_gymnasium(plan: str) -> None:
    same.assert_equals_inline(Processes(), "toy", plan, env=same.gymnasium_cartpole())


def test_an_environments_exception_comes_out_of_a_process(failing: Any) -> None:
    with pytest.raises(failing.kind, match=r"own:Failing.*lane 9, seed \d+, last action") as caught:
        tiny.run(Processes(), "env*4 | policy | learner", failing.task)
    assert "In env 1 of 4." in caught.value.__notes__
    assert "the pole is on fire" in str(caught.value.__cause__)
    assert "in burn" in caught.value.__notes__[-1]


def raise_while_traced(*_: Any) -> NoReturn:
    raise LookupError("no such thing")


# who holds memory traces `act` too, to know what it will be given
@pytest.mark.parametrize(
    ("which", "name"), [("act", "(actor . of 2|learner)"), ("gradient", "learner")]
)
def test_an_algorithms_exception_comes_out_of_a_process(which: str, name: str) -> None:
    task = tiny.task(**{which: raise_while_traced})
    with pytest.raises(LookupError, match="no such thing") as caught:
        tiny.run(Processes(), "actor*2 | learner", task)
    # JAX adds a note of its own
    assert any(re.fullmatch(f"In {name}.", note) for note in caught.value.__notes__)
    assert "in raise_while_traced" in caught.value.__notes__[-1]


def kill_in_the_third_step(steps: int) -> None:
    if steps == 3:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("plan", "name"),
    [("env*2 | policy | learner", "env 1 of 2"), ("actor*2 | learner", "actor 1 of 2")],
)
def test_a_process_lost_in_the_middle_of_a_round_is_named(plan: str, name: str) -> None:
    with pytest.raises(Lost, match=rf"^{name} \(process \d+\) was killed by SIGKILL\.$"):
        tiny.run(Processes(), plan, tiny.task(kill_in_the_third_step))


def test_environments_alone_import_no_jax() -> None:
    """The tiny environment observes whether it is there, and the learner's state is the mean."""
    assert tiny.run(Processes(), "env*2 | policy | learner", tiny.task()) == 0.0
    assert tiny.run(Inline(), "env*2 | policy | learner", tiny.task()) == 1.0


def refuse_other_threads(steps: int) -> None:
    if sys.modules["jax"].config.values[_ASYNC]:
        raise ValueError("a call is not made in the thread of its caller")


_ASYNC = "jax_cpu_enable_async_dispatch"


@pytest.mark.parametrize("handed_over", [False, True])
def test_programs_are_called_as_the_driver_calls_them(
    handed_over: bool, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(lambda before=jax.config.values[_ASYNC]: jax.config.update(_ASYNC, before))
    jax.config.update(_ASYNC, handed_over)
    with pytest.raises(ValueError, match="is not made") if handed_over else nullcontext():
        tiny.run(Processes(), "actor*2 | learner", tiny.task(refuse_other_threads))


def test_memory_does_not_grow() -> None:
    def used() -> list[dict[int, int]]:
        return [arena_sizes(pid) for pid in (os.getpid(), *(c.pid for c in backend._copies))]

    backend = Processes()
    ring = Ring(tiny.task(), parse("actor*2 | learner"), backend)
    with closing(ring):
        reports = run_rounds(ring, Limits(10**9))
        for _ in range(5):
            next(reports)
        before = used()
        assert [len(arenas) for arenas in before] == [4, 4, 4, 4]  # everyone knows every arena
        for _ in range(200):
            next(reports)
        assert used() == before


def test_more_copies_than_a_machine_has_room_for() -> None:
    with pytest.raises(RondelError, match="241 copies; --on processes takes at most 240"):
        Processes().launch(None, Lowering(Kind.ROUNDS, parse("env*239 | policy | learner")))
