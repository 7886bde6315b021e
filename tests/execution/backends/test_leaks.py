"""Nothing stays behind, however a run ends."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from execution.backends import tiny
from execution.backends.remains import below, eventually, look, resident, runs
from rondel.execution.backends.processes.backend import Processes
from rondel.execution.backends.threads import Threads

pytestmark = pytest.mark.fault


def fail_in_the_third_step(steps: int) -> None:
    if steps == 3:
        raise ValueError("the user's own words")


def start_and_stop(kind: Any, ending: int) -> None:
    """One run: every third one fails."""
    plan = ("env*2 | policy | learner", "actor*2 | learner")[ending % 2]
    if ending % 3:
        tiny.run(kind(), plan, tiny.task(), steps=40)
        return
    with pytest.raises(ValueError, match="own words"):
        tiny.run(kind(), plan, tiny.task(fail_in_the_third_step))


def assert_nothing_stays(kind: Any, times: int) -> None:
    start_and_stop(kind, 1)  # what JAX keeps for good is there then
    gc.collect()
    before = look()
    for i in range(times):
        start_and_stop(kind, i)
    gc.collect()
    assert look() == before


def held() -> int:
    """The bytes of this process that are in use: malloc keeps pages that nobody has any more."""
    ctypes.CDLL(None).malloc_trim(0)
    return resident(os.getpid())


@pytest.mark.parametrize("kind", [Processes, Threads])
def test_a_few_runs_leave_nothing(kind: Any) -> None:
    assert_nothing_stays(kind, 3)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [Processes, Threads])
def test_many_runs_leave_nothing(kind: Any) -> None:
    assert_nothing_stays(kind, 10)
    before = held()
    assert_nothing_stays(kind, 40)
    grown = (held() - before) / 40
    assert grown < 2**20, f"{grown / 2**20:.1f} MiB stay of each run"


# Whole scripts, without a guard: whoever runs them again is seen in what they print.

SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import gymnasium, numpy, rondel
from execution.backends import tiny
print("once", flush=True)

class Boom(Exception):
    def __init__(self, part, why):
        super().__init__(part, why)

class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    total = 0
    boom_at = None
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return numpy.zeros(2, "float32"), dict()
    def step(self, action):
        self.steps += 1
        self.total += 1
        if self.total == self.boom_at:
            raise Boom("spring", "rust")
        return numpy.zeros(2, "float32"), 1.0, self.steps == 5, False, dict()

class Own(Mine):
    boom_at = 200

def make(config, spec):
    return tiny.make(config, spec)._replace(absorb=lambda state, summary: state)

ASKED = dict(lanes=4, block=2, eval_episodes=0, plan="actor*2 | learner", on="processes")
"""


def write(folder: Path, ending: str) -> list[str]:
    script = SCRIPT.replace("{tests!r}", repr(str(Path(tiny.__file__).parents[2])))
    (folder / "script.py").write_text(script + textwrap.dedent(ending))
    return [sys.executable, "script.py"]


def test_what_a_script_defines_is_used_and_it_runs_once(tmp_path: Path) -> None:
    command = write(
        tmp_path,
        """
        run = rondel.train(make, Mine, steps=100, out="one", **ASKED)
        print(run.steps, run.policy.act(numpy.zeros(2, "float32")))
        try:
            rondel.train(make, Own, out="two", **ASKED)
        except rondel.RondelError as error:
            assert type(error.__cause__) is Boom, repr(error.__cause__)
            assert error.__cause__.args == ("spring", "rust")
            print(error)
        """,
    )
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    once, result, error = done.stdout.splitlines()
    assert (once, result) == ("once", "100 0")
    assert error.startswith("own:Own raised Boom in step: ('spring', 'rust') (lane ")


def train_for_ever(folder: Path) -> subprocess.Popen[str]:
    """A driver in the middle of its run, in a process group of its own."""
    command = write(
        folder,
        """
        rondel.train(make, Mine, steps=10**8, out="run", **ASKED)
        """,
    )
    driver = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    metrics = folder / "run" / "metrics.jsonl"
    runs_now = eventually(
        lambda: driver.poll() is not None or (metrics.exists() and metrics.stat().st_size > 0), 60
    )
    if not runs_now or driver.returncode is not None:
        driver.kill()
        pytest.fail(driver.communicate()[1])
    return driver


@pytest.mark.parametrize(
    ("signum", "status", "last"),
    [
        # as of any script; the command line makes it 130
        (signal.SIGINT, -signal.SIGINT, "KeyboardInterrupt"),
        (signal.SIGTERM, 143, None),
    ],
)
def test_a_signal_to_all_saves_and_leaves_nobody(
    signum: signal.Signals, status: int, last: str | None, tmp_path: Path
) -> None:
    with train_for_ever(tmp_path) as driver:
        others = below(driver.pid)
        assert len(others) == 4  # three copies, and who starts them
        os.killpg(driver.pid, signum)
        _, err = driver.communicate(timeout=60)
    if last is None:
        assert "Traceback" not in err
    else:
        assert err.rstrip().endswith(last)
    assert driver.returncode == status
    assert not any(map(runs, others))
    assert (tmp_path / "run" / "checkpoints" / "000001" / "state.safetensors").exists()


def test_a_killed_driver_leaves_nobody(tmp_path: Path) -> None:
    with train_for_ever(tmp_path) as driver:
        others = below(driver.pid)
        driver.kill()
    assert len(others) == 4
    assert eventually(lambda: not any(map(runs, others)))
