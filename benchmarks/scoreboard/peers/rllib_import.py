"""Seconds to import RLlib with its PPO."""

from importing import seconds

print(seconds("from ray.rllib.algorithms.ppo import PPOConfig"))
