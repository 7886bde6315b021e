"""Sample Factory's APPO on HalfCheetah-v4 (its Gymnasium has no v5), 64 envs x 64, 2 epochs of
4 x 1,024: steps per second."""

import sys

from sf_examples.mujoco.train_mujoco import parse_mujoco_cfg, register_mujoco_components
from sf_speed import steps_per_second

if __name__ == "__main__":
    register_mujoco_components()
    print(steps_per_second(parse_mujoco_cfg, "mujoco_halfcheetah", 200_000, sys.argv[1:]))
