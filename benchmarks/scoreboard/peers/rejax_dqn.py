"""rejax's DQN on gymnax's CartPole, 64x64, batch 64, one update per step: updates per second."""

import time

import jax
from rejax import DQN

STEPS = 60_000

algo = DQN.create(
    env="CartPole-v1", num_envs=1, num_epochs=1, batch_size=64, buffer_size=50_000,
    fill_buffer=1_000, learning_rate=1e-3, target_update_freq=500, ddqn=False,
    total_timesteps=STEPS, eval_freq=STEPS, skip_initial_evaluation=True,
    agent_kwargs={"activation": "relu"},  # its layers are 64x64 unasked
)  # fmt: skip
compiled = jax.jit(algo.train).lower(jax.random.key(0)).compile()
began = time.monotonic()
jax.block_until_ready(compiled(jax.random.key(1)))
print(STEPS / (time.monotonic() - began))
