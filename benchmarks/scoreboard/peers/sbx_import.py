"""Seconds to import SBX with its PPO."""

from importing import seconds

print(seconds("from sbx import PPO"))
