"""Settings that were found to do well, by algorithm and bare environment id.

`rondel train` starts from these and prints them. Besides fields of the algorithm's `Config` a row
may set the run's own: lanes, normalise_observations, scale_rewards. How well they do is in
benchmarks/learning.
"""

from __future__ import annotations

from typing import Any

TUNED: dict[str, dict[str, dict[str, Any]]] = {
    "ppo": {},
    "dqn": {},
}
