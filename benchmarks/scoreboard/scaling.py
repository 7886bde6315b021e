"""The speed of fused PPO by lanes and network width, beside rejax: results/scaling.md.

    python benchmarks/scoreboard/scaling.py

JAX CartPole, 128 steps a lane and round, 4 epochs of 4 minibatches; ours and theirs alternate.
"""

from __future__ import annotations

import json

import report
import venvs
from rows import BOTH_CORES, HERE, speed

from run import theirs

LANES = (1, 4, 16, 64, 256, 1024, 4096)  # 64 wide
WIDTHS = (128, 256, 512)  # in 64 lanes
HEAD = """# How fused PPO grows

Steps per second on JAX CartPole, 128 steps a lane and round, 4 epochs of 4 minibatches, two
perceptrons of two layers; `python benchmarks/scoreboard/scaling.py`, one turn each. Lanes act in
blocks of 8, rejax's all at once; from 64 lanes on ours are on two cores (`--plan all*2`), as XLA's
threads are for rejax.

| lanes | width | ratio | Rondel | rejax |
|---|---|---|---|---|
"""


def ours(lanes: int, width: int) -> float:
    steps = max(4 * 128 * lanes, 1_500_000 * 64 // width // (4 if lanes < 16 else 1))
    flags = f"--rollout 128 --epochs 4 --minibatches 4 --lanes {lanes} --hidden {width} {width}"
    cores = BOTH_CORES if lanes >= 64 else ""
    return speed(f"ppo jax:CartPole-v1 --steps {steps} {flags} {cores}")()


def main() -> None:
    venvs.python("rejax")  # nothing is installed between turns
    figures, lines = [], []
    for lanes, width in [*((n, 64) for n in LANES), *((64, width) for width in WIDTHS)]:
        mine, peer = ours(lanes, width), theirs("rejax_fused", str(lanes), str(width))
        figures.append({"lanes": lanes, "width": width, "rondel": mine, "rejax": peer})
        lines.append(f"| {lanes} | {width} | {mine / peer:.2f} | {mine:,.0f} | {peer:,.0f} |")
        print(lines[-1], flush=True)
        record = {"machine": report.machine(), "versions": venvs.versions("rejax")}
        told = json.dumps(record | {"figures": figures}, indent=1)
        (HERE.parent / "results" / "scaling.json").write_text(told + "\n")
        (HERE.parent / "results" / "scaling.md").write_text(HEAD + "\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
