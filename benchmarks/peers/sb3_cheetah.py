"""Stable-Baselines3's PPO on HalfCheetah-v5, 8 envs x 512, 2 epochs of
4 x 1,024: steps per second."""

import time

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

model = PPO(
    "MlpPolicy", make_vec_env("HalfCheetah-v5", 8), n_steps=512, batch_size=1_024, n_epochs=2,
    device="cpu",
)  # fmt: skip
model.learn(4_096)
began, before = time.monotonic(), model.num_timesteps
model.learn(40_000, reset_num_timesteps=False)
print((model.num_timesteps - before) / (time.monotonic() - began))
