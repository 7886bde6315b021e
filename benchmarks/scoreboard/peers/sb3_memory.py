"""Megabytes of a process in which Stable-Baselines3 has trained PPO on CartPole a little."""

from rss import megabytes
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

model = PPO("MlpPolicy", make_vec_env("CartPole-v1", 8), n_steps=32, batch_size=256, device="cpu")
model.learn(2_560)
print(megabytes())
