"""RLlib on Pong's pixels, 8 envs x 128, Nature CNN: steps per second of `ppo` or `impala`.

PPO makes 4 epochs of 4 x 256, IMPALA one pass.
"""

import sys
import time

import ale_py
import gymnasium
import ray
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack
from ray.tune.registry import register_env

SECONDS = 40


def make(_):
    gymnasium.register_envs(ale_py)
    game = gymnasium.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0)
    return wrap_atari_for_new_api_stack(game, dim=84, framestack=4)


# the last one sees the whole map of 7 x 7: it is the dense layer, which both heads share
filters = [[32, 8, 4, "valid"], [64, 4, 2, "valid"], [64, 3, 1, "valid"], [512, 7, 1, "valid"]]
nature = DefaultModelConfig(
    conv_filters=filters, conv_activation="relu", head_fcnet_hiddens=[], vf_share_layers=True
)
register_env("pong", make)
ray.init(num_cpus=8)  # more than there are, or IMPALA waits for room for its parts
if sys.argv[1] == "ppo":
    config = PPOConfig().training(train_batch_size=1024, minibatch_size=256, num_epochs=4)
else:
    config = IMPALAConfig().training(train_batch_size_per_learner=256)
algorithm = (
    config.environment("pong")
    .env_runners(num_env_runners=2, num_envs_per_env_runner=4, rollout_fragment_length=128)
    .rl_module(model_config=nature)
    .build_algo()
)


def sampled() -> int:
    """Steps so far."""
    return int(algorithm.train()["num_env_steps_sampled_lifetime"])


for _ in range(3):
    first = sampled()
began = time.monotonic()
last = first
while time.monotonic() - began < SECONDS:
    last = sampled()
print((last - first) / (time.monotonic() - began))
algorithm.stop()
