"""Stable-Baselines3's PPO on Pong's pixels, 8 envs x 128, 4 epochs of 4 x 256: steps per second."""

import ale_py  # noqa: F401  (registers the games)
from sb3_speed import steps_per_second
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

envs = VecFrameStack(make_atari_env("PongNoFrameskip-v4", 8), 4)
model = PPO(
    "CnnPolicy", envs, n_steps=128, batch_size=256, n_epochs=4, learning_rate=2.5e-4,
    clip_range=0.1, ent_coef=0.01, device="cpu",
)  # fmt: skip
print(steps_per_second(model, 1_024, 8_192))
