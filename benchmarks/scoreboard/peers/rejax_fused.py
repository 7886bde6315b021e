"""rejax's PPO on gymnax's CartPole, 64 lanes x 128, 4 epochs x 4 minibatches: steps per second.

Other lanes and another width can be given: `rejax_fused.py 256 64`.
"""

import sys
import time

import jax
from rejax import PPO

LANES, WIDTH = map(int, sys.argv[1:] or (64, 64))
ROUNDS = max(1, 100 * 64 * 64 // (LANES * WIDTH))
STEPS = LANES * 128 * ROUNDS

algo = PPO.create(
    env="CartPole-v1", num_envs=LANES, num_steps=128, num_epochs=4, num_minibatches=4,
    learning_rate=1e-3, total_timesteps=STEPS, eval_freq=STEPS, skip_initial_evaluation=True,
    agent_kwargs={"hidden_layer_sizes": (WIDTH, WIDTH), "activation": "tanh"},
)  # fmt: skip
train = jax.jit(algo.train)
compiled = train.lower(jax.random.key(0)).compile()
jax.block_until_ready(compiled(jax.random.key(0)))
began = time.monotonic()
jax.block_until_ready(compiled(jax.random.key(1)))
print(STEPS / (time.monotonic() - began))
