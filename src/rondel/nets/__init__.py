"""Networks as pairs of functions."""

from rondel.nets.actor_critic import ActorCritic, separate, shared
from rondel.nets.encode import encode, mask_of, width
from rondel.nets.images import impala, minatar, nature
from rondel.nets.mlp import dueling_mlp, mlp
from rondel.nets.own import own_torso
from rondel.nets.recurrent import cell
from rondel.nets.torso import chunk_of, sees_images, torso

__all__ = [
    "ActorCritic",
    "cell",
    "chunk_of",
    "dueling_mlp",
    "encode",
    "impala",
    "mask_of",
    "minatar",
    "mlp",
    "nature",
    "own_torso",
    "sees_images",
    "separate",
    "shared",
    "torso",
    "width",
]
