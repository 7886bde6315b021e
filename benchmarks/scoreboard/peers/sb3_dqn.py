"""Stable-Baselines3's DQN, 256x256, batch 64, one update per step: updates per second."""

from sb3_speed import steps_per_second
from stable_baselines3 import DQN

model = DQN(
    "MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [256, 256]}, batch_size=64,
    buffer_size=50_000, learning_starts=1_000, train_freq=64, gradient_steps=64, device="cpu",
)  # fmt: skip
print(steps_per_second(model, 2_000, 6_000))
