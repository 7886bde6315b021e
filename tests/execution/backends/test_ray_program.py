"""A whole program on Ray, of which a part that it can't be without is lost."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from execution.backends.remains import below, eventually, runs
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
        ("raylet", 0, "The driver's own node of Ray is gone: the raylet at"),
        ("ray::DashboardAgent", 0, "The driver's own node of Ray is gone: the raylet at"),
        ("ray::RuntimeEnvAgent", 0, "The driver's own node of Ray is gone: the raylet at"),
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
        pids = marked(tmp_path) | below(program.pid)  # a title in place of a name hides the mark
        there = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in pids}
        lost = [p for p, said in there.items() if said.split("\0")[0].strip().endswith(part)]
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
    assert "To continue, once Ray runs again: `rondel resume FOLDER`" in errors_said
    assert "Traceback" not in errors_said
    assert eventually(lambda: not any(map(runs, actors)))
    assert eventually(lambda: not any(map(runs, there)), 90)  # Ray's own look for the head so long


BUSY = """
    import sys, time, rondel

    def busy(run, report):
        print("busy", file=sys.stderr, flush=True)
        time.sleep(30)

    try:
        rondel.train("ppo", "CartPole-v1", on="ray", plan="actor*2 | learner", hooks=busy)
    finally:
        print("over", file=sys.stderr, flush=True)
"""


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", ["raylet", "ray::DashboardAgent"])
def test_the_drivers_node_is_lost_while_the_driver_is_busy(part: str, tmp_path: Path) -> None:
    """It hears of nothing then, and Ray would end it without a sentence."""
    (tmp_path / "program.py").write_text(textwrap.dedent(BUSY))
    environ = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    errors = tmp_path / "errors"
    with errors.open("w") as said:
        program = subprocess.Popen(
            [sys.executable, "program.py"],
            cwd=tmp_path,
            env=environ | {"RONDEL_MARK": str(tmp_path)},
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
    try:
        assert eventually(lambda: program.poll() is not None or "busy" in errors.read_text(), 200)
        pids = marked(tmp_path) | below(program.pid)
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0] for pid in pids}
        (lost,) = (pid for pid, said in commands.items() if said.strip().endswith(part))
        os.kill(lost, signal.SIGKILL)
        assert program.wait(timeout=60) == 2, errors.read_text()
    finally:
        program.kill()
        program.wait()
    assert "over" not in errors.read_text()
    assert "rondel: The driver's own node of Ray is gone: the raylet at" in errors.read_text()
    assert eventually(lambda: not any(map(runs, pids)), 90)


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
    assert "Stopped; continue with `rondel resume run`" in said
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
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(module.socket, "create_connection", connect)
    monkeypatch.setattr(module, "_HEAD_MAY_BE_AWAY", -1.0)
    return SimpleNamespace(make=module.Liveness, errors=errors, context=context, module=module)


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
    with pytest.raises(Lost, match=r"the raylet at 10.0.0.2:2, or") if gone else nullcontext():
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


@pytest.fixture
def watched(cluster: Any, monkeypatch: Any) -> Iterator[Any]:
    """Watch a raylet and its agent, in truth two that sleep -> what there is."""
    raylet, agent = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    exits: list[int] = []

    def leave(status: int) -> None:
        exits.append(status)
        made[0].end()  # then its thread returns

    monkeypatch.setattr(cluster.module.os, "_exit", leave)
    monkeypatch.setattr(cluster.module, "_GRACE", 0.2)
    made: list[Any] = []

    def watch(*ours: int) -> Any:
        made.append(cluster.make())
        made[0].watch(cluster.module.Raylet(raylet.pid, (agent.pid,), ours))
        return made[0]

    yield SimpleNamespace(watch=watch, raylet=raylet, agent=agent, exits=exits)
    made[0].end()
    for process in (raylet, agent):
        process.kill()
        process.wait()


def test_a_raylet_that_lost_an_agent_is_kept_from_saying_goodbye(watched: Any) -> None:
    """So that the driver has the time to raise."""
    liveness = watched.watch(watched.raylet.pid)
    liveness.look()
    watched.agent.kill()
    assert watched.raylet.wait(10) == -signal.SIGKILL
    with pytest.raises(Lost, match=r"the raylet at 10.0.0.2:2, or one of its agents, has died"):
        liveness.look()
    assert watched.exits == []


@pytest.mark.parametrize("victim", ["raylet", "agent"])
def test_a_driver_that_does_not_hear_of_it_ends_with_a_sentence(
    victim: str, watched: Any, capfd: Any
) -> None:
    """The agent's raylet is another user's: it lives, until it ends by itself."""
    watched.watch()
    getattr(watched, victim).kill()
    assert eventually(lambda: watched.exits == [2])
    assert capfd.readouterr().err.startswith("rondel: The driver's own node of Ray is gone")
    assert watched.raylet.poll() is None or victim == "raylet"


def test_errors_of_ray_are_sentences(cluster: Any) -> None:
    class Backend:
        liveness = cluster.make()

        @cluster.module.in_sentences
        def fail(self, error: Exception) -> None:
            raise error

    with pytest.raises(
        Lost, match=r"^Ray failed: System error: it broke. To continue: `rondel resume FOLDER`"
    ):
        Backend().fail(ray.exceptions.RaySystemError("it broke.\nand more"))
    with pytest.raises(FileNotFoundError):  # the user's own
        Backend().fail(FileNotFoundError())
    cluster.errors[NODE] = ConnectionRefusedError
    with pytest.raises(Lost, match="The driver's own node of Ray is gone"):
        Backend().fail(BrokenPipeError())
