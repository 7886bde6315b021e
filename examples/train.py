"""Train PPO on CartPole, evaluate it, load it back from its folder and ask it for an action.

    python examples/train.py [STEPS]

Takes about 15 seconds, more when XLA has to compile first. Expect an evaluation near 500, the
highest possible return. The run folder, under runs/, holds metrics, checkpoints and a curve.
"""

import sys

import numpy as np

import rondel


def main(steps: int = 100_000) -> None:
    run = rondel.train("ppo", "CartPole-v1", steps=steps, seed=0, eval_episodes=0)
    print(f"{run.steps:,} steps, {run.episodes} episodes; run folder: {run.path}")
    print(f"training: mean return of the last 100 episodes: {run.return_mean:.1f}")

    evaluation = run.evaluate(episodes=20)  # greedy actions, fresh environments
    print(f"evaluation: mean return {evaluation.mean:.1f} +/- {evaluation.returns.std():.1f}")

    # The same policy in Gymnasium's CartPole; it was trained on the version written in JAX.
    gymnasium = rondel.evaluate(run, "gymnasium:CartPole-v1", episodes=5)
    print(f"in gymnasium:CartPole-v1: mean return {gymnasium.mean:.1f}")

    loaded = rondel.load(run.path)
    falling_right = np.array([0.0, 0.0, 0.1, 0.5])  # position, speed, angle, angular speed
    print(f"action for a pole that falls right: {loaded.policy.act(falling_right)} (1: push right)")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
