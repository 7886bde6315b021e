"""Sample Factory's APPO over 8 CartPoles x 32, 20 epochs of 256: steps per second."""

import sys

import gymnasium
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sf_speed import steps_per_second


def make(full_env_name, cfg, env_config, render_mode=None):
    return gymnasium.make("CartPole-v1", render_mode=render_mode)


def parse(argv):
    parser, _ = parse_sf_args(argv)
    return parse_full_cfg(parser, argv)


if __name__ == "__main__":
    register_env("cartpole", make)
    flags = [
        "--num_workers=2", "--num_envs_per_worker=4", "--rollout=32", "--batch_size=256",
        "--num_batches_per_epoch=1", "--num_epochs=20", "--use_rnn=False",
        "--encoder_mlp_layers", "64", "64", "--recurrence=1", *sys.argv[1:],
    ]  # fmt: skip
    print(steps_per_second(parse, "cartpole", 60_000, flags))
