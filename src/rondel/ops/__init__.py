"""Pure maths on arrays."""

from rondel.ops.masks import masked_mean, standardise
from rondel.ops.returns import gae, n_step

__all__ = ["gae", "masked_mean", "n_step", "standardise"]
