"""Sample Factory's APPO, 8 environments a worker x 64, one pass as one minibatch: steps per second.

Arguments: the environment (cheap: CartPole; slow: it sleeps), workers, seconds.
"""

import sys
from pathlib import Path

import gymnasium
from sample_factory.envs.env_utils import register_env
from sf_host import parse
from sf_speed import steps_per_second

sys.path.append(str(Path(__file__).parents[2] / "distribution"))
from sleepy import Sleepy


def make(full_env_name, cfg, env_config, render_mode=None):
    return Sleepy() if full_env_name == "slow" else gymnasium.make("CartPole-v1")


if __name__ == "__main__":
    env, workers, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    register_env(env, make)
    flags = [
        f"--num_workers={workers}", "--num_envs_per_worker=8", "--rollout=64", "--num_epochs=1",
        f"--batch_size={64 * 8 * workers}", "--num_batches_per_epoch=1", "--use_rnn=False",
        "--encoder_mlp_layers", "64", "64", "--recurrence=1", "--nonlinearity=tanh",
        "--actor_critic_share_weights=False", "--normalize_input=False",
        "--normalize_returns=False", f"--train_for_seconds={seconds * 5 // 4}",
    ]  # fmt: skip
    print(steps_per_second(parse, env, 10**10, flags))
