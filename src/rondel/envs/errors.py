"""What goes wrong inside an environment."""

from __future__ import annotations

from rondel.errors import OwnCodeError


class EnvError(OwnCodeError):
    """An environment's own code raised.

    The sentence names the environment, the lane, its seed, where in the episode it happened and
    the last action.
    """
