"""Megabytes of RLlib's processes when PPO has trained on CartPole a little."""

from ray.rllib.algorithms.ppo import PPOConfig
from rss import megabytes

config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=1)
algorithm = config.build_algo()
for _ in range(3):
    algorithm.train()
print(megabytes())
algorithm.stop()
