"""Megabytes of a process after a short PPO training on CartPole."""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from rss import megabytes

import rondel

with tempfile.TemporaryDirectory() as folder:
    rondel.train("ppo", "gymnasium:CartPole-v1", steps=2_560, lanes=8, out=f"{folder}/run")
    print(megabytes())
