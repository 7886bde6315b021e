"""cpprb's prioritised replay, 1,000,000 rows of 4 numbers, 64 at a time: rows per second."""

import sys
import time

import numpy as np
from cpprb import PrioritizedReplayBuffer

ROWS, AT_ONCE, TURNS = 1_000_000, 64, 2_000
FIELDS = {"obs": {"shape": 4}, "act": {}, "rew": {}, "next_obs": {"shape": 4}, "done": {}}
buffer = PrioritizedReplayBuffer(ROWS, FIELDS, alpha=0.6)
obs = np.random.default_rng(0).normal(size=(10_000, 4)).astype(np.float32)
for _ in range(ROWS // 10_000):
    buffer.add(obs=obs, act=np.zeros(10_000), rew=obs[:, 0], next_obs=obs, done=np.zeros(10_000))


def add():
    few = obs[:AT_ONCE]
    buffer.add(obs=few, act=few[:, 0], rew=few[:, 0], next_obs=few, done=few[:, 0])


def draw():
    batch = buffer.sample(AT_ONCE, beta=0.4)
    buffer.update_priorities(batch["indexes"], np.abs(batch["rew"][:, 0]) + 1e-3)


run = {"add": add, "draw": draw}[sys.argv[1]]
best = 0.0
for _ in range(5):
    began = time.perf_counter()
    for _ in range(TURNS):
        run()
    best = max(best, TURNS * AT_ONCE / (time.perf_counter() - began))
print(best)
