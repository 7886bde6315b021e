"""A driver in a process of its own that saves all the time, to be killed; and what is left then."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from rondel.run.storage import checkpoint, locate
from run import small_checkpoints

CACHE = os.environ["JAX_COMPILATION_CACHE_DIR"]
STEPS = 6_000
SMALL = "--lanes 8 --rollout 16 --epochs 1 --minibatches 2 --hidden 8 --no-tuned".split()
MAIN = """
import sys
from rondel.cli import main
from rondel.run.training import train_loop
train_loop.CHECKPOINT_SECONDS = 0.0
main.main(sys.argv[1:])
"""


def train(folder, *more):
    asked = ["ppo", "CartPole-v1", "--steps", STEPS, "--out", folder, "--eval-episodes", 3]
    return begin("train", *asked, "--json", *SMALL, *more)


def resume(folder):
    return begin("resume", folder, "--json")


def begin(*argv):
    command = [sys.executable, "-c", MAIN, *map(str, argv)]
    # JAX does not write its cache atomically: the one of the other tests is not for those who die
    env = os.environ | {"JAX_COMPILATION_CACHE_DIR": f"{CACHE}-of-the-killed"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, start_new_session=True, env=env, **streams)


def end(process):
    """Wait for it; its result, if it has one, and what it said."""
    out, err = process.communicate(timeout=200)
    assert "Traceback" not in err, err
    lines = out.splitlines()
    return (json.loads(lines[-1]) if lines else None), err


def wait_for(process, instant, folder):
    """Wait until that is to be seen of a run, or it is at its end."""
    deadline = time.monotonic() + 120
    while process.poll() is None and not INSTANTS[instant](folder):
        assert time.monotonic() < deadline


def _newest(folder):
    try:
        return checkpoint.read_meta(locate.find_checkpoint(folder))
    except checkpoint.RondelError:  # it is being pruned right now
        return {"steps": 0}


INSTANTS = {
    "start": lambda folder: (folder / "config.json").exists(),
    "row": lambda folder: _size(folder / "metrics.jsonl") > 0,
    "saving": lambda folder: (
        (folder / "checkpoints/000003").exists()
        and any((folder / "checkpoints").glob(".*.partial"))
    ),
    "removing": lambda folder: any((folder / "checkpoints").glob(".*.removed")),
    "end": lambda folder: _newest(folder)["steps"] >= STEPS,
}


def _size(path):
    return path.stat().st_size if path.exists() else 0


def remains(folder: Path):
    """All that a run has left but for the clock: rows, arrays, meta; and the files' names."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        del row["seconds"], row["steps_per_second"]
    newest = locate.find_checkpoint(folder)
    small_checkpoints.verify(newest)
    arrays = [(newest / name).read_bytes() for name in sorted(os.listdir(newest))]
    return rows, arrays, sorted(os.listdir(folder)), sorted(os.listdir(newest))
