"""A world of another package: an environment for Rondel on one line, in JAX and on the host."""

import numpy as np

from rondel.envs.errors import NotAvailable
from rondel.envs.world import World, split


def _line(name):
    import jax
    import jax.numpy as jnp

    from rondel import Box, Discrete, EnvSpec
    from rondel.envs.jax.episodic import episodic

    size = int(split(name)[1].get("size", 3))
    bound = np.full(1, size, np.float32)
    return episodic(
        EnvSpec(f"lattice:{name}", Box(-bound, bound), Discrete(2)),
        start=lambda keys: jax.vmap(lambda key: jax.random.randint(key, (), -size, size + 1))(keys),
        move=lambda x, a: (
            jnp.clip(x + 2 * a - 1, -size, size),
            -jnp.abs(x).astype(jnp.float32),
            x == size,
        ),
        observe=lambda x: x[:, None].astype(jnp.float32),
        time_limit=8,
    )


def _host():
    import gymnasium

    class Host(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.steps = 0
            return self.np_random.uniform(-1, 1, 1).astype(np.float32), {}

        def step(self, action):
            self.steps += 1
            return np.zeros(1, np.float32), float(action), False, self.steps == 5, {}

    return Host()


def _make(name):
    if name == "LunarLander-v9":
        raise NotAvailable(f"lattice:{name} needs a rocket.")
    return _host() if name == "Host-v0" else _line(name)


INFO = World(
    "lattice",
    "points on a line, of another package",
    lambda: ["Line-v0", "Host-v0", "LunarLander-v9"],
    _make,
    threads=True,
)
