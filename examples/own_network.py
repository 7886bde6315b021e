"""Bring a network: a pair of functions in plain JAX, here with residual layers.

    python examples/own_network.py [STEPS]

Trains PPO on CartPole with it and evaluates it. Takes about 20 seconds. Expect greedy episodes
with a mean return near 500. Any JAX network library works the same way: see
docs/your-own-network.md for Flax and Equinox.
"""

import sys

import jax
import jax.numpy as jnp

import rondel

WIDTH, LAYERS = 32, 3


def residual(space):
    """(init, apply) for observations of this space; Rondel adds the last layers behind it."""
    (size,) = space.shape

    def init(key):
        first, *rest = jax.random.split(key, 1 + LAYERS)
        scale = 1 / WIDTH**0.5
        return {
            "embed": jax.random.normal(first, (size, WIDTH)) / size**0.5,
            "layers": [scale * jax.random.normal(key, (WIDTH, WIDTH)) for key in rest],
        }

    def apply(params, obs):  # obs [b, size] -> features [b, WIDTH]
        x = obs @ params["embed"]
        for layer in params["layers"]:
            x = x + jnp.tanh(x) @ layer / LAYERS
        return jnp.tanh(x)

    return init, apply


def main(steps: int = 100_000) -> None:
    run = rondel.train("ppo", "CartPole-v1", network=residual, steps=steps, eval_episodes=0)
    print(f"mean return of the last 100 training episodes: {run.return_mean:.1f}")
    print(f"mean return of 20 greedy episodes: {run.evaluate(episodes=20).mean:.1f}")

    # A checkpoint holds the parameters, not the code: bring the network again to load it.
    loaded = rondel.load(run.path, network=residual)
    print(f"loaded: {loaded.steps:,} steps, network {loaded.setup.config.network}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
