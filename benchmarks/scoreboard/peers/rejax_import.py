"""Seconds to import rejax with its PPO."""

from importing import seconds

print(seconds("from rejax import PPO"))
