"""What goes wrong inside an environment."""

from __future__ import annotations

from rondel.errors import RondelError


class EnvError(RondelError):
    """An environment's own code raised; `__cause__` is its exception, traceback and all.

    The sentence names the environment, the lane, its seed, where in the episode it happened and
    the last action.
    """
