"""Stable-Baselines3's TD3 on Pendulum, 256x256, batch 256, an update per step: updates/s."""

from sb3_speed import steps_per_second
from stable_baselines3 import TD3

model = TD3(
    "MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [256, 256]}, batch_size=256,
    buffer_size=50_000, learning_starts=500, train_freq=64, gradient_steps=64, device="cpu",
)  # fmt: skip
print(steps_per_second(model, 1_000, 3_000))
