"""The cost of an update with one thread of XLA, and with one for each core.

    python benchmarks/threads.py            some 5 minutes; a table in Markdown
    python benchmarks/threads.py DQN SAC    rows with these in their name

Every figure has a process and a compilation cache of its own: the best of the calls that fit into
four seconds, in turns with the other. `size` is what Rondel decides by: rows of a draw times
numbers of the learner, in millions (`rondel.run.setup.jax_process.configure_jax`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

CARTPOLE, PENDULUM = "gymnasium:CartPole-v1", "gymnasium:Pendulum-v1"
STEPS = {"lanes": 1, "rollout": 64}
UPDATES = {**STEPS, "updates": 64}
MINIBATCHES = {"rollout": 128, "epochs": 4, "minibatches": 4}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "DQN, 64x64, batch 64": ("dqn", CARTPOLE, {**UPDATES, "batch": 64, "hidden": (64, 64)}),
    "PPO, 64x64, batch 256": ("ppo", CARTPOLE, {**MINIBATCHES, "lanes": 8}),
    "DQN, 256x256, batch 64": ("dqn", CARTPOLE, {**UPDATES, "batch": 64, "hidden": (256, 256)}),
    "PPO, 64x64, batch 1,024": ("ppo", CARTPOLE, {**MINIBATCHES, "lanes": 32}),
    "PPO, 64x64, batch 2,048": ("ppo", CARTPOLE, {**MINIBATCHES, "lanes": 64}),
    "PPO, 256x256, batch 1,024": (
        "ppo", CARTPOLE, {**MINIBATCHES, "lanes": 32, "hidden": (256, 256)}
    ),
    "SAC, 256x256, batch 256": ("sac", PENDULUM, {**STEPS, "batch": 256, "hidden": (256, 256)}),
    "SAC, 1024x1024, batch 256": (
        "sac", PENDULUM, {**STEPS, "batch": 256, "hidden": (1024, 1024)}
    ),
    "R2D2, 128, batch 32 of 80": ("r2d2", CARTPOLE, {"batch": 32, "warmup": 3_000}),
    "PPO on pixels, Nature CNN, batch 256": ("ppo", "envpool:Pong-v5", {**MINIBATCHES, "lanes": 8}),
}  # fmt: skip


def measure(name: str) -> None:
    """Print microseconds of an update, and its size."""
    import jax

    import rondel
    from rondel.execution.workers.stage_worker import StageWorker
    from rondel.run.setup import jax_process

    sizes = []
    settle = jax_process.configure_jax
    jax_process.configure_jax = lambda work=None: sizes.append(work) or settle(work)
    algorithm, env, fields = CASES[name]
    with rondel.start(algorithm, env, steps=2**40, tuned=False, **fields) as run:
        for report in run.rounds(at_a_time=1):
            if report.metrics:
                break
        worker = run.ring.policy[0].worker
        assert isinstance(worker, StageWorker)
        best, end = float("inf"), time.monotonic() + 4
        while time.monotonic() < end:
            began = time.perf_counter()
            worker.learn(report.round)
            jax.block_until_ready(worker.learner)
            best = min(best, time.perf_counter() - began)
    work = next(size for size in sizes if size)
    print(json.dumps([best / worker.task.algorithm.memory.draws * 1e6, work / 1e6]))


def run(name: str, threads: int, cache: str) -> tuple[float, float]:
    said = {"NPROC": str(threads), "JAX_COMPILATION_CACHE_DIR": f"{cache}/{threads}"}
    command = [sys.executable, __file__, "--measure", name]
    told = subprocess.run(
        command, env=os.environ | said, stdout=subprocess.PIPE, text=True, check=True
    )
    took, size = json.loads(told.stdout.splitlines()[-1])
    return took, size


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2])
        return
    cores = len(os.sched_getaffinity(0))
    print(f"| learner | size | one thread | {cores} threads | times |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as cache:
        for name in CASES:
            if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
                continue
            turns = [run(name, threads, cache) for threads in (1, cores, cores, 1)]
            one, many = (min(turns[i][0], turns[3 - i][0]) for i in (0, 1))
            size = f"{turns[0][1]:,.0f}"
            cells = [name, size, f"{one:,.0f} us", f"{many:,.0f} us", f"{one / many:.2f}"]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
