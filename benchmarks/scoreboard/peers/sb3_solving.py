"""Seconds from the start of the process until the mean return of the last 100 episodes is 475:
PPO at the settings of Stable-Baselines3's zoo."""

import time

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

STEPS = 500_000


class Solved(BaseCallback):
    def _on_step(self) -> bool:
        returns = [episode["r"] for episode in self.model.ep_info_buffer]
        return len(returns) < 100 or sum(returns) / len(returns) < 475


def seconds_to_solve(PPO, began, **more):
    model = PPO(
        "MlpPolicy", make_vec_env("CartPole-v1", 8), n_steps=32, batch_size=256, n_epochs=20,
        learning_rate=lambda left: 1e-3 * max(0.0, 1 - (1 - left) * STEPS / 100_000),
        clip_range=0.2, gamma=0.98, gae_lambda=0.8, seed=0, **more,
    )  # fmt: skip
    model.learn(STEPS, callback=Solved())
    return time.monotonic() - began
