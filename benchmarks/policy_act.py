"""What one call of `Policy.act` costs, beside the compiled function alone and SB3's `predict`.

    python benchmarks/policy_act.py            # a minute; prints Markdown
    python benchmarks/policy_act.py --write    # and writes policy_act.md

PPO on CartPole with networks of 64 x 64, greedy. Each figure is the best of seven times 1,000
calls, in a process of its own; the three take turns.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "scoreboard"))
import venvs  # noqa: E402

ROWS = (1, 64)
TURNS = 3
WHO = {"bare": "the compiled function", "act": "`Policy.act`", "sb3": "SB3's `predict`"}
HEAD = """# Asking a policy

`python benchmarks/policy_act.py --write`: microseconds for the greedy action of one observation of
CartPole, and of a batch of 64, by PPO with networks of 64 x 64; the best of {turns} turns on two
cores. "The compiled function" is JAX's call of the policy alone, its answer copied to NumPy.

| | one | 64 |
|---|---|---|
"""


def microseconds(call: Callable[[], Any]) -> float:
    call()
    return min(timeit.repeat(call, number=1000, repeat=7)) * 1e3


def measured(who: str, rows: int) -> float:
    """Of a call of `who`, in this process."""
    import jax

    import rondel

    with rondel.start("ppo", "jax:CartPole-v1", steps=1, hidden=(64, 64)) as run:
        policy = run.policy
    many = np.random.default_rng(0).normal(size=(rows, 4)).astype(np.float32)
    if who == "act":
        obs = many[0] if rows == 1 else many
        return microseconds(lambda: policy.act(obs))
    act = jax.jit(lambda weights, obs: policy.algorithm.act(weights, (), obs, None, False)[0])
    return microseconds(lambda: np.asarray(act(policy.weights, many)))


def turn(who: str, rows: int) -> float:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--figure", who, str(rows)]
    if who == "sb3":
        command = [
            venvs.python("sb3"),
            str(HERE / "scoreboard" / "peers" / "sb3_act.py"),
            str(rows),
        ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--figure", nargs=2, metavar=("WHO", "ROWS"), help="one figure, here")
    arguments = parser.parse_args()
    if arguments.figure:
        print(measured(arguments.figure[0], int(arguments.figure[1])))
        return
    best = {(who, rows): np.inf for who in WHO for rows in ROWS}
    for _ in range(TURNS):
        for who, rows in best:
            best[who, rows] = min(best[who, rows], turn(who, rows))
    lines = [
        f"| {name} | {best[who, 1]:.0f} us | {best[who, 64]:.0f} us |\n"
        for who, name in WHO.items()
    ]
    page = HEAD.format(turns=TURNS) + "".join(lines)
    print(page)
    if arguments.write:
        (HERE / "policy_act.md").write_text(page)


if __name__ == "__main__":
    main()
