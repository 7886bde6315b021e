"""Seconds to import Stable-Baselines3 with its PPO."""

from importing import seconds

print(seconds("from stable_baselines3 import PPO"))
