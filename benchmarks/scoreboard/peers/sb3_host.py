"""Stable-Baselines3's PPO over 8 CartPoles: steps per second, at the settings of its zoo."""

import time

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

model = PPO(
    "MlpPolicy", make_vec_env("CartPole-v1", 8), n_steps=32, batch_size=256, n_epochs=20,
    learning_rate=1e-3, gamma=0.98, gae_lambda=0.8, device="cpu",
)  # fmt: skip
model.learn(1_024)
began, before = time.monotonic(), model.num_timesteps
model.learn(30_000, reset_num_timesteps=False)
print((model.num_timesteps - before) / (time.monotonic() - began))
