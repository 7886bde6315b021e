"""RLlib's PPO, 8 environments an env runner x 64, one pass as one minibatch: steps per second.

Arguments: the environment (cheap: CartPole; slow: it sleeps), env runners, seconds.
"""

import sys
import time
from pathlib import Path

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

sys.path.append(str(Path(__file__).parents[2] / "distribution"))
import sleepy

ray.cloudpickle.register_pickle_by_value(sleepy)  # env runners don't have that path

env, runners, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
rows = 64 * 8 * runners
ray.init(address="local", num_cpus=runners + 1)  # they sleep, or share the cores that there are
config = (
    PPOConfig()
    .environment({"cheap": "CartPole-v1", "slow": sleepy.Sleepy}[env])
    .env_runners(num_env_runners=runners, num_envs_per_env_runner=8, rollout_fragment_length=64)
    .training(train_batch_size=rows, minibatch_size=rows, num_epochs=1)
    .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64]))
)
algorithm = config.build_algo()
for _ in range(3):
    before = algorithm.train()["num_env_steps_sampled_lifetime"]
began = time.monotonic()
while time.monotonic() - began < seconds:
    steps = algorithm.train()["num_env_steps_sampled_lifetime"]
print((steps - before) / (time.monotonic() - began))
algorithm.stop()
