"""Write an algorithm in one file: REINFORCE with a whole round as one batch.

    python examples/own_algorithm.py [STEPS]

First it solves probe:both, a task whose best return is 1; then it trains on CartPole under two
plans, which give the same numbers. Takes about 25 seconds. docs/write-your-own-algorithm.md
explains the functions.
"""

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import rondel
from rondel.memory.rollout import rollout
from rondel.nets.mlp import mlp
from rondel.ops import distributions
from rondel.ops.returns import gae
from rondel.ops.statistics import masked_mean, standardise


@dataclass(frozen=True)
class Config:
    rollout: int = 64  # steps that each lane takes in a round
    learning_rate: float = 1e-2  # Adam's step size
    discount: float = 0.98  # discount of a reward per step


class Rows(NamedTuple):  # [lanes, T, ...]
    obs: Any
    action: jax.Array
    ret: jax.Array  # the discounted sum of the rewards that followed
    valid: jax.Array  # False for steps that only reset an environment


def loss(log_prob, rows):
    return -masked_mean(log_prob * standardise(rows.ret, rows.valid), rows.valid)


def make(config, spec):
    dist = distributions.for_space(spec.action)
    policy = mlp(spec.observation, (32, 32), dist.size, last_scale=0.01)
    optimiser = optax.adam(config.learning_rate)

    def init(key):
        params = policy.init(key)
        return params, optimiser.init(params)  # the learner's state

    def act(params, carry, obs, keys, explore):
        out = policy.apply(params, obs)
        return dist.sample(out, keys) if explore else dist.mode(out), carry, ()

    def prepare(params, tr):  # a trajectory [T, lanes, ...] -> items [lanes, T, ...], summary
        values, ends = jnp.zeros(tr.first.shape), (tr.terminated, tr.truncated, tr.valid)
        ret = gae(tr.reward, values, *ends, config.discount, 1.0)
        rows = Rows(tr.obs[:-1], tr.action, ret, tr.valid)
        return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows), ()

    def gradient(params, rows, key):
        def total(params):
            return loss(dist.log_prob(policy.apply(params, rows.obs), rows.action), rows)

        value, grads = jax.value_and_grad(total)(params)
        return grads, rows.valid.sum().astype(jnp.float32), (), {"loss": value}

    def update(state, grads):
        changes, opt_state = optimiser.update(grads, state[1])
        return optax.apply_updates(state[0], changes), opt_state

    acting = learning = lambda state: state[0]
    memory = rollout(epochs=1, minibatches=1)
    return rondel.Algorithm(
        init, acting, learning, gradient, update, act, prepare, memory, config.rollout
    )


def main(steps: int = 100_000) -> None:
    here = sys.modules[__name__]  # a module with `Config` and `make` is an algorithm
    probe = rondel.train(here, "probe:both", lanes=16, steps=min(steps, 20_000), eval_episodes=0)
    print(f"probe:both: {probe.evaluate(episodes=50).mean:.2f} (1 is the best)")
    for plan, on in (("all", "inline"), ("actor*2 | learner", "threads")):
        asked = {"lanes": 16, "plan": plan, "on": on, "steps": steps, "eval_episodes": 0}
        with rondel.train(here, "CartPole-v1", **asked) as run:
            print(f"CartPole-v1 by {plan} on {on}: mean return {run.return_mean:.4f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
