"""Networks as pairs of functions."""

from rondel.nets.encode import encode, mask_of, width
from rondel.nets.mlp import dueling_mlp, mlp

__all__ = ["dueling_mlp", "encode", "mask_of", "mlp", "width"]
