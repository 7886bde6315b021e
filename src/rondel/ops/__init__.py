"""Pure maths on arrays."""

from rondel.ops import random
from rondel.ops.masks import masked_mean, standardise
from rondel.ops.returns import gae, n_step

__all__ = ["gae", "masked_mean", "n_step", "random", "standardise"]
