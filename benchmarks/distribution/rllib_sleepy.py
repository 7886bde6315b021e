"""RLlib's PPO on the environment that sleeps: python rllib_sleepy.py RUNNERS ENVS SECONDS.

Prints steps per second, after the first iterations. The same rounds as ours: 64 steps of each
of a runner's environments, one pass over them, two layers of 16.
"""

from __future__ import annotations

import sys
import time

from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from sleepy import Sleepy

runners, envs, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
rows = 64 * runners * envs
config = (
    PPOConfig()
    .environment(Sleepy)
    .env_runners(num_env_runners=runners, num_envs_per_env_runner=envs, rollout_fragment_length=64)
    .env_runners(num_cpus_per_env_runner=2 / 64)
    .training(train_batch_size=rows, minibatch_size=rows, num_epochs=1)
    .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[16, 16]))
)
algorithm = config.build_algo()
for _ in range(3):
    algorithm.train()
began, steps = time.monotonic(), 0
while time.monotonic() - began < seconds:
    algorithm.train()
    steps += rows
print(steps / (time.monotonic() - began))
algorithm.stop()
