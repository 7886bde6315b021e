"""Copies of the whole ring on several devices: one program, the same numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

# in a process of its own, since the number of devices is settled when JAX starts
SCRIPT = """
from rondel.run import machine

machine.settle()
import jax
import numpy as np

from execution.test_equality import assert_equal, run, task
from rondel.execution.backends.inline import Inline
from rondel.execution.ring import Ring
from rondel.plan import parse

ring = Ring(task("toy"), parse("all*2"))
assert ring.fused and len(ring.policy) == 1
run(ring, 300)
saved, at = jax.tree.map(np.array, (ring.tree(), ring.stored())), (ring.round, ring.steps)
other = Ring(task("toy"), parse("all*2"))
other.restore(*saved, *at)
apart = run(Ring(task("toy"), parse("all*2"), Inline(meshed=False)), 700)
for meshed in (run(ring, 700), run(other, 700)):
    meshed["returns"] = apart["returns"]  # those before the stop were reported there
    assert_equal(meshed, apart)
print("equal")
"""


@pytest.mark.long
def test_copies_on_devices_equal_copies_in_turn() -> None:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"XLA_FLAGS": flags.strip(), "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.stdout.strip() == "equal", done.stderr
