"""A whole program on Ray, of which a part that it can't be without is lost."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from execution.backends.remains import eventually, runs
from rondel.execution.backends.protocol import Lost

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.fault


def marked(path: Path) -> set[int]:
    """The processes that inherited a mark."""
    found = set()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"RONDEL_MARK={path}".encode() in environ.read_bytes():
                found.add(int(environ.parent.name))
        except OSError:  # it is gone, or not ours
            continue
    return found


SCRIPT = """
    import gymnasium
    from execution.test_equality import Limits, Ring, make, parse, run_rounds, task
    from rondel.execution.backends.ray.backend import Ray

    class Mine(gymnasium.Wrapper):
        def __init__(self):
            super().__init__(gymnasium.make("CartPole-v1"))

    ring = Ring(task("toy", make(Mine)), parse("actor*2 | memory*2 | gradient*2 | update"), Ray())
    try:
        for report in run_rounds(ring, Limits(10**9)):
            print("round", report.round, *[copy.process for copy in ring.policy], flush=True)
    finally:
        ring.close()
"""


@pytest.mark.long
def test_ctrl_c_ends_a_program_and_the_cluster_that_it_started(tmp_path: Path) -> None:
    """With more copies than cores, and an environment that only the program's own file has."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(SCRIPT))
    tests = Path(__file__).parents[2]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    environ |= {"PYTHONPATH": str(tests), "RONDEL_MARK": str(tmp_path)}
    program = subprocess.Popen(
        [sys.executable, str(script)],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert program.stdout is not None
        line = program.stdout.readline().split()
        assert line[:1] == ["round"], program.communicate()[1]
        there = marked(tmp_path)
        assert set(map(int, line[2:])) < there
        os.killpg(program.pid, signal.SIGINT)
        _, errors = program.communicate(timeout=60)
    finally:
        program.kill()
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert eventually(lambda: not marked(tmp_path) & there)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("part", "actors_too", "said"),
    [
        ("gcs_server", 0, "is gone, and with it the cluster"),
        ("gcs_server", 1, "is gone, and with it the cluster"),
        ("raylet", 0, "The driver's own node of Ray is gone: its raylet at"),
    ],
)
def test_a_part_of_ray_is_lost(part: str, actors_too: int, said: str, tmp_path: Path) -> None:
    """Ray itself would end the program, in words of its own. An actor dies too, or none."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    environ |= {"RONDEL_MARK": str(tmp_path), "COLUMNS": "400"}
    asked = "train ppo CartPole-v1 --steps 1000000000 --on ray --out run --plan".split()
    with (tmp_path / "errors").open("w") as errors:  # no pipe: Ray's own processes hold it too
        program = subprocess.Popen(
            [sys.executable, "-m", "rondel", *asked, "actor*2 | learner"],
            cwd=tmp_path,
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
    try:
        # as long as a loaded machine takes to start Ray, and JAX in four processes
        rows = tmp_path / "run" / "metrics.jsonl"
        assert eventually(lambda: program.poll() is not None or _has_some(rows), 600)
        assert program.poll() is None, (tmp_path / "errors").read_text()
        there = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in marked(tmp_path)}
        lost = [pid for pid, command in there.items() if command.split("\0")[0].endswith(part)]
        actors = [pid for pid, command in there.items() if command.startswith("ray::Worker")]
        assert (len(lost), len(actors)) == (1, 3)
        for pid in lost + actors[:actors_too]:
            os.kill(pid, signal.SIGKILL)
        program.wait(timeout=180)
    finally:
        program.kill()
        program.wait()
    errors_said = (tmp_path / "errors").read_text()
    assert program.returncode == 2, errors_said
    assert said in errors_said
    assert "`rondel resume FOLDER` goes on from the last checkpoint" in errors_said
    assert "Traceback" not in errors_said
    assert eventually(lambda: not any(map(runs, actors)))
    assert eventually(lambda: not any(map(runs, there)), 90)  # Ray's own look for the head so long


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seeds", [[], ["--seeds", "2"]])
def test_sigterm_to_all_saves(seeds: list[str], tmp_path: Path) -> None:
    """As `timeout` sends it; Ray's own processes would have ended before the round."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    environ |= {"RONDEL_MARK": str(tmp_path), "COLUMNS": "400"}
    asked = "train ppo CartPole-v1 --steps 1000000000 --on ray --out run".split()
    with (tmp_path / "errors").open("w") as errors:
        program = subprocess.Popen(
            [sys.executable, "-m", "rondel", *asked, *seeds, "--plan", "actor*2 | learner"],
            cwd=tmp_path,
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    try:
        run = tmp_path / "run" / ("seed-0" if seeds else "")
        rows = run / "metrics.jsonl"
        assert eventually(lambda: program.poll() is not None or _has_some(rows), 600)
        assert program.poll() is None, (tmp_path / "errors").read_text()
        there = marked(tmp_path)
        os.killpg(program.pid, signal.SIGTERM)
        program.wait(timeout=120)
    finally:
        program.kill()
        program.wait()
    said = (tmp_path / "errors").read_text()
    assert program.returncode == 143, said
    assert "Stopped; go on with `rondel resume run`" in said
    assert (run / "checkpoints" / "000001" / "state.safetensors").exists()
    assert eventually(lambda: not marked(tmp_path) & there, 90)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_what_ray_says_is_not_in_the_json(tmp_path: Path) -> None:
    """Ray tells of a dead actor on stdout."""
    asked = "train ppo CartPole-v1 --steps 400000 --eval-episodes 0 --on ray --out run".split()
    environ = os.environ | {"RONDEL_MARK": str(tmp_path)}
    with (tmp_path / "answer").open("w") as answer, (tmp_path / "errors").open("w") as errors:
        program = subprocess.Popen(
            [sys.executable, "-m", "rondel", *asked, "--json", "--plan", "actor*2 | learner"],
            cwd=tmp_path,
            env=environ,
            stdout=answer,
            stderr=errors,
        )
    try:
        rows = tmp_path / "run" / "metrics.jsonl"
        assert eventually(lambda: program.poll() is not None or _has_some(rows), 600)
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in marked(tmp_path)}
        os.kill(next(p for p in commands if commands[p].startswith("ray::Worker")), signal.SIGKILL)
        program.wait(timeout=600)
    finally:
        program.kill()
        program.wait()
    assert "(raylet)" in (tmp_path / "errors").read_text()
    assert json.loads((tmp_path / "answer").read_text())["steps"] >= 400_000


def _has_some(rows: Path) -> bool:
    return rows.exists() and rows.stat().st_size > 0


HEAD, NODE = ("10.0.0.1", 6379), ("10.0.0.2", 2)


@pytest.fixture
def cluster(monkeypatch: Any) -> SimpleNamespace:
    """A cluster whose parts answer a connection with an error, or None for none."""
    module = importlib.import_module("rondel.execution.backends.ray.liveness")
    errors: dict[Any, Any] = {HEAD: None, ("fd00::1", 6379): None, NODE: None}

    def connect(at: Any, timeout: float) -> Any:
        if error := errors[at]:
            raise error
        return SimpleNamespace(close=lambda: None)

    nodes = [
        {"NodeID": "another", "NodeManagerAddress": "10.0.0.1", "NodeManagerPort": 1},
        {"NodeID": "mine", "NodeManagerAddress": "10.0.0.2", "NodeManagerPort": 2},
    ]
    context = SimpleNamespace(get_node_id=lambda: "mine", gcs_address="10.0.0.1:6379")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(module.socket, "create_connection", connect)
    monkeypatch.setattr(module, "_HEAD_MAY_BE_AWAY", -1.0)
    return SimpleNamespace(make=module.Liveness, errors=errors, context=context)


@pytest.mark.parametrize(
    ("first", "then", "gone"),
    [
        (None, None, False),
        (None, TimeoutError, False),
        (None, ConnectionRefusedError, True),
        (ConnectionRefusedError, ConnectionRefusedError, False),
    ],
)
def test_a_node_that_is_slow_or_was_never_reached_is_not_gone(
    first: Any, then: Any, gone: bool, cluster: Any
) -> None:
    cluster.errors[NODE] = first
    liveness = cluster.make()
    cluster.errors[NODE] = then
    liveness.look()  # too soon
    with (
        pytest.raises(Lost, match=r"its raylet at 10.0.0.2:2 was killed") if gone else nullcontext()
    ):
        liveness.require()
    assert liveness.node_is_gone == gone


@pytest.mark.parametrize(
    ("address", "at"), [("10.0.0.1:6379", HEAD), ("[fd00::1]:6379", ("fd00::1", 6379))]
)
@pytest.mark.parametrize("reached", [True, False])
def test_only_a_head_that_was_reached_can_be_missed(
    address: str, at: Any, reached: bool, cluster: Any
) -> None:
    cluster.context.gcs_address = address
    cluster.errors[at] = None if reached else OSError
    liveness = cluster.make()
    liveness.require()
    assert not liveness.head_is_gone
    cluster.errors[at] = OSError
    with pytest.raises(Lost, match="is gone, and with it") if reached else nullcontext():
        liveness.require()
    assert liveness.head_is_gone == reached
