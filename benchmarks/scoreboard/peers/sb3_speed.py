"""Steps per second of a model of Stable-Baselines3 or SBX, after it has begun to learn."""

import time


def steps_per_second(model, warm, steps):
    model.learn(warm)
    began, before = time.monotonic(), model.num_timesteps
    model.learn(steps, reset_num_timesteps=False)
    return (model.num_timesteps - before) / (time.monotonic() - began)
