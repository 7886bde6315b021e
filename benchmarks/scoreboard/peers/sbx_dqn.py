"""SBX's DQN, 256x256, batch 64, one update per step: updates per second."""

import time

from sbx import DQN

model = DQN(
    "MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [256, 256]}, batch_size=64,
    buffer_size=50_000, learning_starts=1_000, train_freq=64, gradient_steps=64,
)  # fmt: skip
model.learn(2_000)
began, before = time.monotonic(), model.num_timesteps
model.learn(6_000, reset_num_timesteps=False)
print((model.num_timesteps - before) / (time.monotonic() - began))
