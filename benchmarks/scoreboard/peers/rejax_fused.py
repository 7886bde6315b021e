"""rejax's PPO on gymnax's CartPole, 64 lanes x 128, 4 epochs x 4 minibatches: steps per second."""

import time

import jax
from rejax import PPO

STEPS = 64 * 128 * 100

algo = PPO.create(
    env="CartPole-v1", num_envs=64, num_steps=128, num_epochs=4, num_minibatches=4,
    learning_rate=1e-3, total_timesteps=STEPS, eval_freq=STEPS, skip_initial_evaluation=True,
    agent_kwargs={"hidden_layer_sizes": (64, 64), "activation": "tanh"},
)  # fmt: skip
train = jax.jit(algo.train)
compiled = train.lower(jax.random.key(0)).compile()
jax.block_until_ready(compiled(jax.random.key(0)))
began = time.monotonic()
jax.block_until_ready(compiled(jax.random.key(1)))
print(STEPS / (time.monotonic() - began))
