"""Stable-Baselines3's replay (uniform: it has no priorities), 1,000,000 rows of 4 numbers, 64 at a
time: rows per second."""

import sys
import time

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

ROWS, AT_ONCE, TURNS = 1_000_000, 64, 2_000
space = spaces.Box(-1, 1, (4,), np.float32)
buffer = ReplayBuffer(ROWS, space, spaces.Discrete(2), device="cpu", n_envs=AT_ONCE)
obs = np.random.default_rng(0).normal(size=(AT_ONCE, 4)).astype(np.float32)
done, infos = np.zeros(AT_ONCE), [{} for _ in range(AT_ONCE)]


def add():
    buffer.add(obs, obs, done[:, None], done, done, infos)


def draw():
    buffer.sample(AT_ONCE)


for _ in range(ROWS // AT_ONCE):
    add()
run = {"add": add, "draw": draw}[sys.argv[1]]
best = 0.0
for _ in range(5):
    began = time.perf_counter()
    for _ in range(TURNS):
        run()
    best = max(best, TURNS * AT_ONCE / (time.perf_counter() - began))
print(best)
