"""Small runs for the tests of the run package."""

from __future__ import annotations

from typing import Any

PPO: dict[str, Any] = {
    "lanes": 8,
    "rollout": 16,
    "epochs": 1,
    "minibatches": 2,
    "hidden": (8,),
    "tuned": False,
}
DQN: dict[str, Any] = {
    "lanes": 8,
    "rollout": 4,
    "updates": 2,
    "batch": 16,
    "capacity": 500,
    "warmup": 100,
    "hidden": (8,),
    "n_step": 2,
    "prioritised": True,
    "tuned": False,
}
SMALL = {"ppo": PPO, "dqn": DQN}
