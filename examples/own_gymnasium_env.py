"""Train DQN on a gymnasium.Env, with two worker processes that step it.

    python examples/own_gymnasium_env.py [STEPS]

A walker in a corridor of 8 cells has to find the door at the right end. Takes about 15 seconds.
Expect a mean return near 0.95, the best possible (1 at the door, -0.01 for each step before it).
"""

import sys

import gymnasium
import numpy as np

import rondel


class Corridor(gymnasium.Env):
    """The observation is the walker's place, from 0 to 1. Actions: 0 left, 1 right."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    cells, limit = 8, 50

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # seeds self.np_random, where all randomness must come from
        self.place, self.steps = int(self.np_random.integers(self.cells // 2)), 0
        return self.observation(), {}

    def step(self, action):
        self.place = int(np.clip(self.place + (1 if action == 1 else -1), 0, self.cells - 1))
        self.steps += 1
        terminated = self.place == self.cells - 1
        truncated = self.steps == self.limit  # a time limit is not a termination
        return self.observation(), 1.0 if terminated else -0.01, terminated, truncated, {}

    def observation(self):
        return np.array([self.place / (self.cells - 1)], np.float32)


def main(steps: int = 20_000) -> None:
    # Each lane is one Corridor. Two processes step eight lanes each; a third one learns.
    run = rondel.train(
        "dqn",
        Corridor,
        plan="actor*2 | learner",
        lanes=16,
        warmup=1_000,
        epsilon_steps=5_000,
        steps=steps,
        eval_episodes=0,
    )
    with run:  # ends the processes
        print(f"mean return of the last 100 training episodes: {run.return_mean:.2f}")
        print(f"mean return of 20 greedy episodes: {run.evaluate(episodes=20).mean:.2f}")


if __name__ == "__main__":  # needed: the worker processes import this file
    main(*map(int, sys.argv[1:]))
