"""Run the same training here and on Ray, and check that the numbers are equal.

    python examples/ray_cluster.py [STEPS]              starts a local Ray for this run
    RAY_ADDRESS=auto python examples/ray_cluster.py     uses the cluster this machine belongs to

Needs `pip install "rondel[ray]"`. Takes about half a minute. Expect "equal parameters: True".
"""

import sys

import jax
import numpy as np

import rondel

TASK = {"lanes": 16, "seed": 3, "eval_episodes": 0}
RAY = {
    "plan": "actor*2 | learner",  # two actors with 8 lanes each, and a learner
    "on": "ray",
    # What each copy asks of Ray. On a cluster: "actor:cpu=1 learner:cpu=4,gpu=1".
    "resources": "actor:cpu=0 learner:cpu=0",
}


def main(steps: int = 20_000) -> None:
    here = rondel.train("ppo", "CartPole-v1", steps=steps, **TASK)
    print(f"one process: mean return {here.return_mean:.4f}")

    # Actors that die, with their node for instance, are restarted without a change in the numbers.
    there = rondel.train("ppo", "CartPole-v1", steps=steps, **TASK, **RAY)
    print(f"on Ray: mean return {there.return_mean:.4f}")

    # Both runs as their checkpoints have them, here in this process.
    one, other = (rondel.load(run.path).state.params for run in (here, there))
    equal = jax.tree.map(np.array_equal, one, other)
    print(f"equal parameters: {all(jax.tree.leaves(equal))}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
