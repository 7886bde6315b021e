"""Microseconds of Stable-Baselines3's `predict` for observations of CartPole.

python sb3_act.py ROWS       # 1: one observation without a batch axis
"""

import sys
import timeit

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO

torch.set_num_threads(1)
model = PPO("MlpPolicy", gymnasium.make("CartPole-v1"), device="cpu")
rows = int(sys.argv[1])
obs = np.random.default_rng(0).normal(size=(rows, 4)).astype(np.float32)
obs = obs[0] if rows == 1 else obs


def predict():
    return model.predict(obs, deterministic=True)


predict()
print(min(timeit.repeat(predict, number=1000, repeat=7)) * 1e3)
