"""Sample Factory's APPO on Pong's pixels, 8 envs x 128, one pass of 4 x 256: steps per second."""

import sys

import ale_py  # noqa: F401  (registers the games)
from sf_examples.atari.train_atari import parse_atari_args, register_atari_components
from sf_speed import steps_per_second

if __name__ == "__main__":
    register_atari_components()
    flags = ["--num_epochs=1", "--summaries_use_frameskip=False", *sys.argv[1:]]
    print(steps_per_second(parse_atari_args, "atari_pong", 25_000, flags))
