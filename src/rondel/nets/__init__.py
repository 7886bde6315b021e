"""Networks as pairs of functions."""

from rondel.nets.action_values import action_values, dueling
from rondel.nets.actor_critic import ActorCritic, separate, shared
from rondel.nets.critic import critic, policy, several
from rondel.nets.encode import encode, mask_of, unseen, width, without_state
from rondel.nets.images import board, impala, minatar, nature
from rondel.nets.mlp import mlp
from rondel.nets.noisy import with_noise
from rondel.nets.own import own_torso
from rondel.nets.recurrent import cell
from rondel.nets.recurrent_values import Recalled, RecurrentValues, recurrent_values
from rondel.nets.torso import choose, chunk_of, torso

__all__ = [
    "ActorCritic",
    "Recalled",
    "RecurrentValues",
    "action_values",
    "board",
    "cell",
    "choose",
    "chunk_of",
    "critic",
    "dueling",
    "encode",
    "impala",
    "mask_of",
    "minatar",
    "mlp",
    "nature",
    "own_torso",
    "policy",
    "recurrent_values",
    "separate",
    "several",
    "shared",
    "torso",
    "unseen",
    "width",
    "with_noise",
    "without_state",
]
