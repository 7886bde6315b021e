"""Tuned settings, by algorithm and bare environment id.

`rondel train` starts from these and prints them. Besides fields of the algorithm's `Config` a row
may set those of the run: lanes, block, normalise_observations, scale_rewards. Results are in
benchmarks/learning and benchmarks/games. Settings for LunarLander-v3, HalfCheetah-v5, Pong-v5 and
Breakout-MinAtar are from publications.
"""

from __future__ import annotations

from typing import Any

# a target network that follows at every step, and 3-step returns
_AVERAGED: dict[str, Any] = {"batch": 128, "n_step": 3, "anneal_steps": 100_000}
_AVERAGED |= {"target_every": 1, "target_rate": 0.005}
_LIGHT = _AVERAGED | {"batch": 64, "updates": 16, "hidden": (64, 64)}
# rounds of 128 steps, with rewards scaled to returns of about 1; four actors can share the lanes
_SMALL_ROUNDS: dict[str, Any] = {"lanes": 8, "block": 2, "rollout": 16, "scale_rewards": True}
# sequences of 8 + 16 steps
_REMEMBERED: dict[str, Any] = (
    {"rollout": 8, "updates": 4, "batch": 32, "capacity": 100_000, "warmup": 5_000}
    | {"learning_rate": 1e-3, "discount": 0.99, "n_step": 3}
    | {"target_every": 1, "target_rate": 0.01}
    | {"hidden": (64, 64), "memory": "gru", "memory_size": 64}
    | {"sequence": 16, "overlap": 8, "burn_in": 8}
)
# most games end within a round, so most positions have a result
_CONNECT_FOUR: dict[str, Any] = (
    {"lanes": 128, "block": 32, "rollout": 64, "updates": 128}
    | {"capacity": 1_000_000, "warmup": 8_000}
    | {"considered": 7, "stray": 0.25, "network": "board"}
)

TUNED: dict[str, dict[str, dict[str, Any]]] = {
    "ppo": {
        "CartPole-v1": {"rollout": 64, "minibatches": 4, "discount": 0.98, "gae_lambda": 0.9},
        "Pendulum-v1": {"discount": 0.95, "anneal_steps": 300_000},
        "LunarLander-v3": {"lanes": 16, "rollout": 1024, "epochs": 4, "minibatches": 256}
        | {"learning_rate": 3e-4, "discount": 0.999, "gae_lambda": 0.98, "entropy_cost": 0.01},
        "HalfCheetah-v5": {"lanes": 8, "rollout": 64, "epochs": 20, "minibatches": 8}
        | {"learning_rate": 2e-5, "discount": 0.98, "gae_lambda": 0.92, "clip": 0.1}
        | {"entropy_cost": 4e-4, "value_cost": 0.58, "max_grad_norm": 0.8}
        | {"hidden": (256, 256), "log_std": -2.0}
        | {"normalise_observations": True, "scale_rewards": True},
        "Pong-v5": {"lanes": 8, "rollout": 128, "epochs": 4, "minibatches": 4}
        | {"learning_rate": 2.5e-4, "anneal_steps": 10_000_000}
        | {"clip": 0.1, "entropy_cost": 0.01},
        "Breakout-MinAtar": {"lanes": 64, "rollout": 128, "epochs": 4, "minibatches": 8}
        | {"learning_rate": 5e-3, "anneal_steps": 10_000_000}
        | {"entropy_cost": 0.01, "network": "mlp"},
    },
    "dqn": {"CartPole-v1": _AVERAGED},
    "c51": {"CartPole-v1": _LIGHT | {"return_min": 0.0, "return_max": 100.0}},
    "qrdqn": {"CartPole-v1": _AVERAGED | {"atoms": 16, "learning_rate": 1e-3}},
    # with noisy layers alone all lanes acted alike for half of the run, and learned late
    "rainbow": {
        "CartPole-v1": _LIGHT
        | {"learning_rate": 1e-3, "n_step": 10, "target_rate": 0.02}
        | {"epsilon_start": 1.0, "epsilon_end": 0.05}
        | {"return_min": 0.0, "return_max": 100.0}
    },
    # returns as distributions over 0 to 50: with a mean alone values diverged in some runs
    "apex": {
        "CartPole-v1": _LIGHT
        | {"batch": 128, "rollout": 4, "discount": 0.98, "anneal_steps": 300_000}
        | {"n_step": 10, "target_rate": 0.02}
        | {"returns": "categorical", "return_min": 0.0, "return_max": 50.0}
        | {"learning_rate": 1e-3}
    },
    "r2d2": {
        "CartPole-v1": _REMEMBERED | {"anneal_steps": 1_000_000},
        "KeyDoor-v0": _REMEMBERED | {"updates": 8},
    },
    "r2d3": {"KeyDoor-v0": _REMEMBERED | {"updates": 8, "demo_ratio": 0.25}},
    "ddpg": {"Pendulum-v1": {"batch": 128, "discount": 0.98, "hidden": (64, 64)}},
    "td3": {"Pendulum-v1": {"batch": 128, "discount": 0.98, "n_step": 3, "hidden": (64, 64)}},
    "sac": {
        "Pendulum-v1": {"policy_rate": 1e-3, "critic_rate": 2e-3}
        | {"batch": 128, "discount": 0.98, "hidden": (64, 64)},
        "HalfCheetah-v5": {"lanes": 4, "rollout": 1, "warmup": 5_000},
    },
    "qtopt": {
        "Pendulum-v1": {"updates_per_step": 0.5, "batch": 64, "discount": 0.98, "hidden": (64, 64)}
    },
    "apex-ddpg": {
        "Pendulum-v1": {"rollout": 1, "batch": 128, "discount": 0.98, "hidden": (64, 64)}
    },
    "a2c": {"CartPole-v1": _SMALL_ROUNDS | {"anneal_steps": 500_000}},
    "a3c": {"CartPole-v1": _SMALL_ROUNDS | {"anneal_steps": 1_000_000}},
    "impala": {"CartPole-v1": _SMALL_ROUNDS | {"anneal_steps": 300_000}},
    "appo": {"CartPole-v1": _SMALL_ROUNDS | {"anneal_steps": 300_000}},
    "ars": {
        "CartPole-v1": {"lanes": 16, "block": 2, "rollout": 500},
        "Swimmer-v5": {"lanes": 8, "sigma": 0.5, "learning_rate": 0.1},
    },
    # a search is faster for many lanes in one call, and four actors can still share them
    "alphazero": {
        "TicTacToe-v0": {"block": 16},
        "tic_tac_toe": {"block": 16},  # pgx's
        "ConnectFour-v0": _CONNECT_FOUR,
        "connect_four": _CONNECT_FOUR,
    },
}
