"""Megabytes of an environment with RLlib."""

from size import megabytes

print(megabytes())
