"""RLlib's PPO over 8 CartPoles x 32, 20 epochs of 256: steps per second."""

import time

from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

config = (
    PPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=1, num_envs_per_env_runner=8, rollout_fragment_length=32)
    .training(train_batch_size=256, minibatch_size=256, num_epochs=20, lr=1e-3, gamma=0.98)
    .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64]))
)
algorithm = config.build_algo()
for _ in range(3):
    algorithm.train()
began, steps = time.monotonic(), 0
while time.monotonic() - began < 20:
    algorithm.train()
    steps += 256
print(steps / (time.monotonic() - began))
algorithm.stop()
