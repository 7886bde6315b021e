"""A trace of copies on several nodes, each of which has a clock of its own."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

import rondel
from rondel.execution.telemetry import timing

ray = pytest.importorskip("ray")
backend = importlib.import_module("rondel.execution.backends.ray.backend")
cluster_utils = importlib.import_module("ray.cluster_utils")
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
AHEAD = 1_000.0  # seconds


class Ahead(gymnasium.Env[Any, Any]):
    """In an actor of Ray it puts the clock ahead, as that of another machine may be."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        if ray.is_initialized() and ray.get_runtime_context().get_actor_id():
            clock = {"time": lambda: time.time() + AHEAD, "thread_time": time.thread_time}
            timing.time = SimpleNamespace(**clock)  # type: ignore[attr-defined]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._left = 20
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self._left -= 1
        return np.zeros(3, np.float32), 1.0, False, self._left == 0, {}


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes on this machine, neither of which has room for all copies."""
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    made.add_node(num_cpus=1)
    made.wait_for_nodes()
    backend.join(made.address)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.mark.long
def test_all_copies_are_on_the_clock_of_the_driver(cluster: Any, tmp_path: Path) -> None:
    nodes: set[str] = set()

    def look(run: Any, report: Any) -> None:
        nodes.update(copy.node for piece in run.ring.copies for copy in piece)

    small = {"lanes": 8, "block": 4, "rollout": 8, "epochs": 1, "minibatches": 1, "hidden": (8,)}
    there = {"plan": "actor*2 | learner", "on": "ray", "address": cluster.address}
    began = time.time()
    rondel.train(
        *("ppo", Ahead),
        **{"steps": 600, "out": tmp_path / "run", "eval_episodes": 0, "tuned": False},
        **{"hooks": look} | small | there,
    )
    assert nodes == {node["NodeID"] for node in ray.nodes()}
    events = json.loads((tmp_path / "run" / "trace.json").read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert sorted(names.values()) == ["actor 1 of 2", "actor 2 of 2", "driver", "learner"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {span["tid"] for span in spans} == set(names)
    assert all(began < span["ts"] / 1e6 < time.time() for span in spans)  # not AHEAD
