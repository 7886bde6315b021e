"""Pure maths on arrays."""

from rondel.ops import random
from rondel.ops.chunks import chunked, chunked_sum, mean_grad, together
from rondel.ops.masks import masked_mean, standardise
from rondel.ops.optimisers import packed
from rondel.ops.products import product
from rondel.ops.rescaling import rescale, restore
from rondel.ops.returns import VTrace, gae, n_step, to_the_end, vtrace
from rondel.ops.unroll import unroll

__all__ = [
    "VTrace",
    "chunked",
    "chunked_sum",
    "gae",
    "masked_mean",
    "mean_grad",
    "n_step",
    "packed",
    "product",
    "random",
    "rescale",
    "restore",
    "standardise",
    "to_the_end",
    "together",
    "unroll",
    "vtrace",
]
