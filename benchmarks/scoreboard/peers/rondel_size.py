"""Megabytes of an environment with what Rondel needs."""

from size import megabytes

print(megabytes())
