"""Stable-Baselines3's PPO over 8 CartPoles: steps per second, at the settings of its zoo."""

from sb3_speed import steps_per_second
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

model = PPO(
    "MlpPolicy", make_vec_env("CartPole-v1", 8), n_steps=32, batch_size=256, n_epochs=20,
    learning_rate=1e-3, gamma=0.98, gae_lambda=0.8, device="cpu",
)  # fmt: skip
print(steps_per_second(model, 1_024, 30_000))
