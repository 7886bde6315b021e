"""The driver is killed, for real; what `rondel resume` makes of it equals a run in peace."""

import os
import random
import signal

import pytest

from execution.backends.remains import below, eventually, runs
from run import driver_to_kill
from run.driver_to_kill import INSTANTS, end, remains, resume, train, wait_for

pytestmark = pytest.mark.fault

CLOCK = ("seconds", "steps_per_second", "path")
CUT = ("--plan", "actor*2 | learner", "--on", "processes", "--block", "4")


def without_clock(result):
    return {name: value for name, value in result.items() if name not in CLOCK}


@pytest.fixture(scope="module")
def peace(tmp_path_factory):
    """The same run, undisturbed."""
    folder = tmp_path_factory.mktemp("peace") / "run"
    result, _ = end(train(folder))
    return without_clock(result), remains(folder)


def kill(process):
    """Kill the driver alone; whatever it has started has to end by itself."""
    started = below(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert eventually(lambda: not any(map(runs, started)))


def go_on(folder, again):
    """`rondel resume` to the end; `again` begins anew if nothing was saved, as it is told to."""
    result, said = end(resume(folder))
    if result is None and "holds no checkpoint" in said:
        assert "start it again with the same `rondel train`" in said
        assert f"--out {folder}" in said
        result, said = end(again())
    return result, said


@pytest.mark.parametrize(
    "instant",
    [pytest.param(name, marks=() if name == "saving" else pytest.mark.long) for name in INSTANTS],
)
def test_a_killed_run_goes_on_as_if_nothing_had_been(tmp_path, peace, instant):
    folder = tmp_path / "run"
    process = train(folder)
    wait_for(process, instant, folder)
    kill(process)
    result, said = go_on(folder, lambda: train(folder))
    assert result, said
    assert (without_clock(result), remains(folder)) == peace


@pytest.mark.long
def test_a_run_on_processes_leaves_none_and_goes_on(tmp_path):
    calm, folder = tmp_path / "calm", tmp_path / "run"
    result, said = end(train(calm, *CUT))
    assert result, said
    process = train(folder, *CUT)
    wait_for(process, "saving", folder)
    assert below(process.pid)
    kill(process)
    resumed, said = go_on(folder, lambda: train(folder, *CUT))
    assert resumed, said
    assert without_clock(resumed) == without_clock(result)
    assert remains(folder) == remains(calm)


@pytest.mark.long
def test_a_finished_run_says_that_it_is_at_its_end(tmp_path):
    end(train(tmp_path / "run"))
    result, said = end(resume(tmp_path / "run"))
    assert result is None
    assert "already finished" in said


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("plan", [(), CUT], ids=["uncut", "cut"])
def test_kills_at_any_instant(tmp_path, plan):
    """Killed again and again, resumed runs too, at instants that are drawn at random."""
    chance = random.Random(0)
    calm = tmp_path / "calm"
    result, said = end(train(calm, *plan))
    assert result, said
    usual = (without_clock(result), remains(calm))
    for number in range(8):
        folder = tmp_path / f"run{number}"
        process = train(folder, *plan)
        for _ in range(chance.randint(1, 4)):
            try:
                process.wait(chance.uniform(0.0, 8.0))
            except driver_to_kill.subprocess.TimeoutExpired:
                kill(process)
                process = resume(folder)
        result, said = end(process)
        if result is None and "already finished" not in said:
            result, said = go_on(folder, lambda folder=folder: train(folder, *plan))
        assert remains(folder) == usual[1], said
        assert result is None or without_clock(result) == usual[0]
