"""The rows of the scoreboard: a workload, how we run it, and which peers run the same.

A peer `LIBRARY_SOMETHING` is `peers/LIBRARY_SOMETHING.py`, which prints one number on its last
line and runs in the environment of `peers/LIBRARY.txt`. Rows with `same_work` have the same
sizes, batches and epochs on both sides; in the others each side uses its own settings.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
RONDEL = [sys.executable, "-m", "rondel"]


class Row(NamedTuple):
    name: str
    what: str
    unit: str
    ours: Callable[[], float]
    peers: tuple[str, ...]
    goal: float | None = None  # how many times the first peer we want to be
    less: bool = False  # the smaller figure is the better one
    same_work: bool = True
    quick: bool = False  # part of `make bench`

    def times_better(self, ours: float, theirs: float) -> float:
        return theirs / ours if self.less else ours / theirs


def train(*flags: str, env: dict[str, str] | None = None) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [*RONDEL, "train", *flags, "--out", f"{folder}/run", "--json"]
        result = subprocess.run(
            command, capture_output=True, text=True, env=os.environ | (env or {}), check=False
        )
    if result.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stderr}")
    return json.loads(result.stdout.splitlines()[-1])


def speed(words: str, per_step: float = 1.0) -> Callable[[], float]:
    """Steps per second of a run (times `per_step`), without compilation."""
    flags = [*shlex.split(words), "--eval-episodes", "0", "--no-tuned"]
    return lambda: train(*flags)["steps_per_second"] * per_step


def solve(warm: bool) -> float:
    """Seconds from the shell prompt until training has reached a mean return of 475."""
    flags = "ppo CartPole-v1 --steps 500000 --until-return 475 --eval-episodes 0".split()
    with tempfile.TemporaryDirectory() as cache:
        env = {} if warm else {"JAX_COMPILATION_CACHE_DIR": cache}
        if warm:
            train(*flags, env=env)
        began = time.monotonic()
        train(*flags, env=env)
        return time.monotonic() - began


def seconds(code: str) -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.monotonic() - began


def script(name: str, *arguments: str) -> float:
    """The number that one of our scripts here prints on its last line."""
    command = [sys.executable, str(HERE / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


FUSED = "--lanes 64 --rollout 128 --epochs 4 --minibatches 4 --hidden 64 64"
HOST = "--lanes 8 --rollout 32 --epochs 20 --minibatches 1 --hidden 64 64"
CHEETAH = "--lanes 64 --rollout 64 --epochs 2 --minibatches 4 --hidden 64 64"
PONG = "--lanes 8 --rollout 128 --minibatches 4"
DQN = "--lanes 1 --rollout 64 --updates 64 --batch 64 --hidden 256 256"
CONTROL = "--lanes 1 --rollout 64 --batch 256 --hidden 256 256"

BOTH_CORES = (
    "--plan all*2 --on inline"  # the same work: half of the lanes and of a minibatch on each
)
SHARED = "--plan 'actor+memory | gradient*2 | update' --on inline"  # half of a batch on each

ROWS = [
    Row(
        "fused", "PPO, JAX CartPole, 64 lanes x 128, 4 epochs x 4 minibatches", "steps/s",
        speed(f"ppo jax:CartPole-v1 --steps 3000000 {FUSED} {BOTH_CORES}"),
        ("rejax_fused",), goal=2, quick=True,
    ),
    Row(
        "fused DQN", "DQN, JAX CartPole, 64x64, batch 64, one update per step", "updates/s",
        speed(
            "dqn jax:CartPole-v1 --steps 60000 --lanes 1 --rollout 64 --updates 64 --batch 64"
            " --hidden 64 64 --no-double"
        ),
        ("rejax_dqn",),
    ),
    Row(
        "host", "PPO, Gymnasium's CartPole, 8 envs x 32, 20 epochs of 256", "steps/s",
        speed(f"ppo gymnasium:CartPole-v1 --steps 100000 {HOST}"),
        ("sb3_host", "sbx_host", "sf_host", "rllib_host"), goal=10, quick=True,
    ),
    Row(
        "host, APPO", "the same by APPO, which acts while it learns, as Sample Factory's does",
        "steps/s",
        speed(
            f"appo gymnasium:CartPole-v1 --steps 200000 {HOST}"
            " --plan 'actor | learner' --lag 1 --on processes"
        ),
        ("sf_host", "sb3_host"), goal=6,
    ),
    Row(
        "host, EnvPool", "the same over EnvPool's CartPole (peers: Gymnasium's)", "steps/s",
        speed(f"ppo envpool:CartPole-v1 --steps 100000 {HOST}"),
        ("sb3_host", "sbx_host", "sf_host", "rllib_host"),
    ),
    Row(
        "DQN", "Gymnasium's CartPole, 256x256, batch 64, one update per step", "updates/s",
        speed(f"dqn gymnasium:CartPole-v1 --steps 20000 --no-double {DQN}"),
        ("sbx_dqn", "sb3_dqn"), goal=3, quick=True,
    ),
    Row(
        "SAC", "Gymnasium's Pendulum, 256x256, batch 256, one update per step", "updates/s",
        speed(f"sac gymnasium:Pendulum-v1 --steps 4000 {CONTROL} {SHARED}"),
        ("sbx_sac", "sb3_sac"), goal=2, quick=True,
    ),
    Row(
        "TD3", "Gymnasium's Pendulum, 256x256, batch 256, one update per step", "updates/s",
        speed(f"td3 gymnasium:Pendulum-v1 --steps 4000 {CONTROL} {SHARED}"),
        ("sbx_td3", "sb3_td3"),
    ),
    Row(
        "cheetah", "PPO, HalfCheetah, 64 envs x 64, 2 epochs of 4 x 1,024", "steps/s",
        speed(f"ppo envpool:HalfCheetah-v5 --steps 200000 {CHEETAH}"),
        ("sf_cheetah",), goal=3,
    ),
    Row(
        "Pong 4ep", "PPO, pixels, Nature CNN, 8 envs x 128, 4 epochs of 4 x 256", "steps/s",
        speed(f"ppo envpool:Pong-v5 --steps 16000 --epochs 4 {PONG} {SHARED}"),
        ("sb3_pong", "rllib-atari_pong:ppo"), goal=1.4,
    ),
    Row(
        "Pong 1ep", "IMPALA (SF: APPO), pixels, Nature CNN, 8 envs x 128, one pass", "steps/s",
        speed(f"impala envpool:Pong-v5 --steps 25000 {PONG} {SHARED}"),
        ("sf_pong", "rllib-atari_pong:impala"), goal=2,
    ),
    Row(
        "Pong APPO", "the same by APPO", "steps/s",
        speed(f"appo envpool:Pong-v5 --steps 25000 --epochs 1 {PONG} {SHARED}"), ("sf_pong",),
    ),
    Row(
        "replay add", "prioritised replay, 1,000,000 rows of 4 numbers: add 64", "rows/s",
        functools.partial(script, "../replay", "--figure", "prioritised", "add"),
        ("flashbax_replay:add", "cpprb_replay:add"), goal=1,
    ),
    Row(
        "replay draw", "prioritised replay, 1,000,000 rows: draw 64, write priorities back",
        "rows/s",
        functools.partial(script, "../replay", "--figure", "prioritised", "draw"),
        ("flashbax_replay:draw", "cpprb_replay:draw"), goal=1,
    ),
    Row(
        "uniform draw", "uniform replay, 1,000,000 rows of 4 numbers: draw 64", "rows/s",
        functools.partial(script, "../replay", "--figure", "uniform", "draw"),
        ("sb3_replay:draw",), goal=1,
    ),
    Row(
        "solve, cold", "shell prompt to a mean return of 475 on CartPole", "s",
        lambda: solve(warm=False), ("sb3_solve", "sbx_solve"), less=True, same_work=False,
    ),
    Row(
        "solve, warm", "shell prompt to a mean return of 475 on CartPole, programs compiled before",
        "s",
        lambda: solve(warm=True), ("sb3_solve", "sbx_solve"), less=True, same_work=False,
        quick=True,
    ),
    Row(
        "import", "import, with all that training needs", "s",
        lambda: seconds("import rondel; rondel.train"),
        ("rejax_import", "sb3_import", "sbx_import", "rllib_import"), less=True, quick=True,
    ),
    Row(
        "memory", "resident after a short PPO training on CartPole", "MB",
        functools.partial(script, "our_memory"), ("sb3_memory", "rllib_memory"), less=True,
        same_work=False,
    ),
    Row(
        "install", "packages on disk of what training on CartPole needs", "MB",
        functools.partial(script, "our_size"), ("rejax_size", "torch_size", "rllib_size"),
        less=True, same_work=False,
    ),
]  # fmt: skip
