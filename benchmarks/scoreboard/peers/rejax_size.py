"""Megabytes of an environment with rejax."""

from size import megabytes

print(megabytes())
