"""The backend of Ray's actors."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from execution.backends import same
from execution.test_equality import assert_equal, task
from marks import few_of
from rondel.errors import RondelError
from rondel.execution.backends import registry
from rondel.execution.backends.inline import Inline
from rondel.execution.backends.lowering import Kind, Lowering
from rondel.execution.backends.protocol import Lost, Unresponsive
from rondel.execution.backends.recovery.policy import is_due
from rondel.execution.loop.ring import Ring
from rondel.execution.requests import GRADIENT, Request
from rondel.execution.telemetry.timeouts import Timeouts
from rondel.execution.telemetry.timing import Metered
from rondel.plan.parser import parse
from rondel.types import HostWorld

ray = pytest.importorskip("ray")
backend = importlib.import_module("rondel.execution.backends.ray.backend")
Ray = backend.Ray

CPUS = 8
CASES = (  # two more plans are tested below, before something else is done with their actors
    ("ppo", "actor*2 | learner"),
    ("toy", "env*2 | policy+learner"),
    ("dqn", "actor*2 | memory*2 | gradient+update"),
    ("toy", "actor+memory+gradient*2 | update"),
    ("ppo", "all*2"),
)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One for all tests: it takes seconds to start, as does each process of an actor."""
    backend.start_here(num_cpus=CPUS)
    yield
    ray.shutdown()


@pytest.mark.parametrize(("name", "plan"), few_of(CASES, CASES[:2]))
def test_ray_equals_inline(name: str, plan: str) -> None:
    same.assert_equals_inline(Ray(), name, plan)


def test_ray_equals_inline_on_gymnasium() -> None:
    world = same.gymnasium_cartpole()
    same.assert_equals_inline(Ray(), "toy", "actor*2 | learner", env=world)


def test_wide_networks_begin_with_the_same_weights():
    same.assert_equals_inline(Ray(), "wide", "actor | learner")


def test_host_environments_alone_need_no_jax() -> None:
    world = same.gymnasium_cartpole()

    def make_without_jax(lanes: int, first_lane: int) -> Any:  # goes by value: it is local
        import sys

        if "jax" in sys.modules:
            raise RuntimeError("jax was imported")
        return world.make(lanes, first_lane)

    cut = "env*2 | policy | learner"
    result = same.run_on(Ray(), "toy", cut, env=HostWorld(world.spec, make_without_jax))
    assert_equal(result, same.inline("toy", cut, 0, world))


@pytest.mark.long
def test_ray_equals_inline_with_a_lag_and_after_a_restore() -> None:
    """What is restored is no promise: values go to the actors, rounds in flight among them."""
    plan = parse("actor*2 | learner", lag=1)
    inline = Ring(task("toy"), plan)
    same.run(inline, 300)
    saved = jax.tree.map(np.array, (inline.tree(), inline.stored()))  # memory's own is used up
    at = (inline.round, inline.steps)
    expected = same.run(inline, 900)
    ring = Ring(task("toy"), plan, Ray())
    try:
        result = same.run(ring, 900)
        assert_equal(result | {"returns": expected["returns"]}, expected)
        ring.restore(*saved, *at)
        assert ring.round < expected["counts"][0] - 2
        assert_equal(same.run(ring, 900), expected)
    finally:
        ring.close()


@pytest.mark.long
def test_ray_equals_inline_until_an_environment_is_killed() -> None:
    """Only its policy is in touch with it, but the driver hears who died."""
    plan = "env*2 | policy | learner"
    ring = Ring(task("dqn"), parse(plan), Ray())
    try:
        assert_equal(same.run(ring, 900), same.inline("dqn", plan, 0, same.ENV))
        os.kill(ring.env[1].process, signal.SIGKILL)
        with pytest.raises(Lost, match=r"env 2 of 2 \(process \d+ on .*\) died"):
            same.run(ring, 9_000)
    finally:
        ring.close()


NOTE, NOTES, NOTHING, IS_NONE = map(Request, ("note", "notes", "nothing", "is_none"))
PROCESS, SLEEP, ARRAY, FAIL, TRAIN = map(Request, ("process", "sleep", "array", "fail", "train"))


class Recorder(Metered):
    """In place of a worker: it does as it is told."""

    def __init__(self) -> None:
        self.noted: list[Any] = []

    def note(self, what: Any) -> None:
        self.noted.append(what)

    def notes(self) -> Any:
        return np.array(self.noted)

    def nothing(self) -> None:
        pass

    def is_none(self, what: Any) -> bool:
        return what is None

    def process(self) -> int:
        return os.getpid()

    def sleep(self, seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    def gradient(self, one: Any, two: Any) -> tuple[Any, Any]:  # a request with two results
        return one, two

    def array(self, length: int) -> Any:
        return np.ones(length)

    def fail(self) -> None:
        try:
            raise KeyError("at the bottom")
        except KeyError as error:
            raise Unusual(3, "left") from error

    def keep(self, most_bytes: int) -> tuple[bool, Any]:
        time.sleep(0.2)
        return True, np.ones(3)

    def train(self) -> Any:
        return same.run_on(Ray(), "toy", "actor*2 | learner", steps=300)

    def close(self) -> None:
        pass


class Unusual(Exception):
    """One that pickle can't rebuild from its message."""

    def __init__(self, code: int, side: str) -> None:
        super().__init__(f"code {code} on the {side}")


@contextmanager
def recorders(plan: str = "actor*2 | learner", **options: Any) -> Iterator[Any]:
    """Recorders in place of workers -> (backend, the copies of each piece)."""
    on = Ray(**options)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(backend, "worker_factory", lambda *_: (Recorder, ()))
            patch.setattr(backend, "HostEnvs", Recorder)  # then no jax is imported for them
            pieces = on.launch(None, Lowering(Kind.ROUNDS, parse(plan)))
        yield on, pieces
    finally:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(backend, "_GRACE", 0.5)
            on.close()


@pytest.fixture(scope="module")
def three() -> Iterator[Any]:
    """(backend, two actors and a learner), which must be left without failures."""
    with recorders() as (on, (actors, (learner,))):
        yield on, *actors, learner


def test_a_copy_answers_in_order_even_if_it_must_wait_for_others(three: Any) -> None:
    on, one, two, learner = three
    learner.send(NOTE, one.send(SLEEP, 0.5))  # waits
    learner.send(NOTE, two.send(SLEEP, 0))  # could go first
    learner.send(NOTE, 7)  # waits for nothing
    assert on.get([learner.send(NOTES)])[0].tolist() == [0.5, 0, 7]


def test_what_is_handed_on_is_what_was_made(three: Any) -> None:
    on, one, two, learner = three
    first, second = one.send(GRADIENT, one.send(NOTHING), two.send(ARRAY, 10**6))
    none, array, number = on.get([learner.send(IS_NONE, first), second, 5])
    assert none
    assert number == 5  # a value is its own promise
    array += 1  # and writable, so it is our own
    assert array.sum() == 2 * 10**6


def test_waiting_tells_who_is_there(three: Any) -> None:
    on, one, two, _ = three
    slow, quick = one.send(SLEEP, 2.0), two.send(SLEEP, 0)
    assert on.wait([slow, quick]) == [1]
    assert on.wait([slow, None]) == [1]
    assert on.get([slow]) == [2.0]


def test_who_is_late_is_named_and_not_who_waits_for_it(three: Any, monkeypatch: Any) -> None:
    on, _, two, learner = three
    slow = learner.send(NOTE, two.send(SLEEP, 4.0))
    with monkeypatch.context() as patch:
        patch.setattr(on.recovery.state, "timeouts", Timeouts(0.5, 0.5))
        late = r"within 0\.5 s from actor 2 of 2 \(process .*\), asked to `sleep`\. It hangs"
        with pytest.raises(Unresponsive, match=late):
            on.get([slow])
    on.get([slow])


def test_a_failure_that_nobody_asked_about_is_raised_at_once() -> None:
    with recorders("actor | learner") as (on, ((actor,), (learner,))):
        actor.send(FAIL)
        actor.send(NOTHING)
        began = time.monotonic()
        with pytest.raises(Unusual, match="code 3 on the left") as caught:
            on.get([learner.send(SLEEP, 60)])
        assert time.monotonic() - began < 30
    assert "In actor." in caught.value.__notes__
    assert any("in fail\n    raise Unusual(3" in note for note in caught.value.__notes__)
    assert caught.value.__context__ is None  # nothing of Ray's machinery is shown
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_users_exception_comes_out(failing: Any) -> None:
    with pytest.raises(failing.kind, match=r"lane 9.*last action") as caught:
        same.run_on(Ray(), "dqn", "env*2 | policy | learner", env=failing.world)
    # two phases of 8 lanes: env 1 has lanes 8 to 11 of the second
    assert "In env 1 of 2." in caught.value.__notes__
    assert isinstance(caught.value.__cause__, ValueError)
    assert any('raise ValueError("the pole is on fire")' in n for n in caught.value.__notes__)


def test_a_killed_actor_is_named_at_once() -> None:
    with recorders() as (on, ((one, two), (learner,))):
        slow = [learner.send(NOTE, copy.send(SLEEP, 60)) for copy in (one, two)]
        began = time.monotonic()
        os.kill(two.process, signal.SIGKILL)
        said = rf"actor 2 of 2 \(process {two.process} on .*\) died: its worker process has died"
        with pytest.raises(Lost, match=said):
            on.get(slow)
        assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        (
            [{"cpu": 1}, {"cpu": 99, "memory": 2**60}],
            r"`actor\*2 \| learner` asks for 101 CPU, 1.07e\+09 GiB of",
        ),
        ([{"gpu": 1}, {}], r"asks for 2 GPU, and the cluster has no GPU at all. Ask for none"),
        ([{}], r"for each of the 2 pieces of .*, got 1"),
        ([{"cpu": -1}, {}], r"resources must be 0 or more, got cpu=-1 for actor"),
    ],
)
def test_a_cluster_that_is_too_small_is_refused(resources: Any, said: str) -> None:
    with pytest.raises(RondelError, match=said):
        Ray(resources=resources).launch(
            task("toy"), Lowering(Kind.ROUNDS, parse("actor*2 | learner"))
        )


def test_a_cluster_that_is_busy_is_named_and_left_alone(three: Any) -> None:
    rest = CPUS - len(three[1:])
    until(lambda: free() == rest)  # actors of tests before this one end in their own time
    with recorders("all", resources=[{"cpu": rest}]):
        until(lambda: free() == 0)
        busy = Ray(resources=[{"cpu": CPUS}])
        busy._timeouts = Timeouts(0.2, 0.2)
        with pytest.raises(
            Unresponsive, match=rf"asks for {CPUS} CPU\. .* within 0\.2 s: 0 CPU free now"
        ):
            busy.launch(task("toy"), Lowering(Kind.FUSED, parse("all")))
        with recorders("all", resources=[{"cpu": 0}]) as (on, ((copy,),)):  # shares the cores
            assert on.get([copy.send(PROCESS)]) == [copy.process]


def test_a_deadline_does_not_count_what_is_done_for_the_first_time() -> None:
    """An actor takes longer than that to be there, and what it is asked is compiled first."""
    with recorders("all", deadline=0.2) as (on, ((copy,),)):
        assert on.get([copy.send(SLEEP, 1.0)]) == [1.0]
        with pytest.raises(
            Unresponsive, match=r"No answer within 0\.2 s from all .*, asked to `sleep`"
        ):
            on.get([copy.send(SLEEP, 3.0)])


def test_what_keeping_takes_is_known_and_so_it_is_kept_seldom() -> None:
    with recorders("all", restarts=20) as (on, ((copy,),)):
        on.after_round(now=True)
        assert on.get([copy.log.base])[0].tolist() == [1, 1, 1]
        unsaved = on.recovery.state.unsaved(time.monotonic())
        assert not is_due(unsaved._replace(seconds=20.0))
        assert is_due(unsaved._replace(seconds=2000.0))


@pytest.mark.long
def test_a_run_within_an_actor_of_a_run() -> None:
    with recorders("all") as (on, ((outer,),)):
        inner = on.get([outer.send(TRAIN)])[0]
    assert_equal(inner, same.run_on(Inline(), "toy", "actor*2 | learner", steps=300))


def test_nothing_is_left(three: Any) -> None:
    on, *copies = three
    processes = [copy.process for copy in copies]
    assert all(map(is_alive, processes))
    on.close()
    on.close()  # a second time does nothing
    assert ray.is_initialized()  # it was there before
    until(lambda: not any(map(is_alive, processes)))
    until(lambda: groups() == {"REMOVED"})
    until(lambda: free() == CPUS)


def free() -> float:
    """CPUs that nobody has, as Ray sees it by now."""
    return float(ray.available_resources().get("CPU", 0))


def groups() -> set[str]:
    """What became of the rooms that were reserved."""
    return {group["state"] for group in ray.util.placement_group_table().values()}


def until(true: Any) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_alive(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def test_without_ray_the_command_to_install_it_is_said(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "rondel.execution.backends.ray.backend")
    with pytest.raises(RondelError, match=r'pip install "rondel\[ray\]"'):
        registry.find("ray").create(registry.BackendOptions())
