"""Write an environment in JAX and train PPO on it: the whole training becomes one XLA program.

    python examples/own_jax_env.py [STEPS]

A boat has to reach the origin of a plane while a random wind pushes it. Takes about 15 seconds.
Doing nothing earns about -30 per episode; expect the trained policy to earn more than -12.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import rondel
from rondel.envs.jax.episodic import episodic

PLANE = np.full(2, 3.0, np.float32)
THRUST = np.full(2, 0.3, np.float32)
SPEC = rondel.EnvSpec(
    "example:boat", observation=rondel.Box(-PLANE, PLANE), action=rondel.Box(-THRUST, THRUST)
)


def start(keys: jax.Array) -> dict[str, jax.Array]:
    """keys [lanes] -> the state of each lane; any tree of arrays [lanes, ...]."""
    position = jax.vmap(lambda key: jax.random.uniform(key, (2,), minval=-2.0, maxval=2.0))(keys)
    return {"position": position, "key": keys}


def move(state, action):
    """(state, action [lanes, 2]) -> (next state, reward [lanes], terminated [lanes])."""
    keys = jax.vmap(jax.random.split)(state["key"])  # randomness needs a key in the state
    wind = 0.05 * jax.vmap(lambda key: jax.random.normal(key, (2,)))(keys[:, 0])
    position = jnp.clip(state["position"] + action + wind, -3.0, 3.0)
    distance = jnp.linalg.norm(position, axis=-1)
    return {"position": position, "key": keys[:, 1]}, -distance, jnp.zeros_like(distance, bool)


def observe(state):
    return state["position"]


# Adds the time limit, resets, and the counting of returns and lengths.
boat = episodic(SPEC, start, move, observe, time_limit=20)


def main(steps: int = 100_000) -> None:
    run = rondel.train("ppo", boat, lanes=32, rollout=21, steps=steps, eval_episodes=0)
    print(f"mean return of the last 100 training episodes: {run.return_mean:.1f}")
    print(f"mean return of 50 greedy episodes: {run.evaluate(episodes=50).mean:.1f}")
    print(f"thrust at (1, -1): {run.policy.act(np.array([1.0, -1.0]))}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
