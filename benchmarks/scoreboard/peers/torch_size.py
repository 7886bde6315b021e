"""Megabytes of an environment with Stable-Baselines3 alone, on CPU PyTorch."""

from size import megabytes

print(megabytes())
