"""Write an algorithm in one file: REINFORCE with a whole round as one batch.

    python examples/own_algorithm.py [STEPS]

Solves probe:both, then trains on CartPole under two plans, with equal numbers. About 25 seconds.
"""

import sys
from dataclasses import dataclass

import jax
import optax

import rondel
from rondel.memory.rollout import rollout
from rondel.nets.mlp import mlp
from rondel.ops import distributions, returns, statistics


@dataclass(frozen=True)
class Config:
    rollout: int = 64  # steps that each lane takes in a round
    discount: float = 0.98  # discount of a reward per step


def make(config, spec):  # docs/write-your-own-algorithm.md explains the functions
    dist = distributions.for_space(spec.action)
    policy = mlp(spec.observation, (32, 32), dist.size, last_scale=0.01)
    optimiser = optax.adam(1e-2)

    def init(key):  # the learner's state: parameters and Adam's moments
        return (params := policy.init(key)), optimiser.init(params)

    def act(params, carry, obs, keys, explore):
        out = policy.apply(params, obs)
        return dist.sample(out, keys) if explore else dist.mode(out), carry, ()

    def prepare(params, tr):  # a trajectory [T, lanes, ...] -> items [lanes, T, ...]
        ends, no_values = (tr.terminated, tr.truncated, tr.valid), 0.0 * tr.first
        ret = returns.gae(tr.reward, no_values, *ends, config.discount, 1.0)
        return jax.tree.map(lambda x: x.swapaxes(0, 1), (tr.obs[:-1], tr.action, ret, tr.valid)), ()

    def loss(params, obs, action, ret, valid):
        log_prob = dist.log_prob(policy.apply(params, obs), action)
        return -statistics.masked_mean(log_prob * statistics.standardise(ret, valid), valid)

    def gradient(params, rows, key):
        value, grads = jax.value_and_grad(loss)(params, *rows)
        return grads, rows[-1].sum().astype(float), (), {"loss": value}

    def update(state, grads):
        changes, moments = optimiser.update(grads, state[1])
        return optax.apply_updates(state[0], changes), moments

    parts = gradient, update, act, prepare, rollout(epochs=1, minibatches=1), config.rollout
    return rondel.Algorithm(init, lambda state: state[0], lambda state: state[0], *parts)


def main(steps: int = 100_000) -> None:
    here = sys.modules[__name__]  # a module with `Config` and `make` is an algorithm
    probe = rondel.train(here, "probe:both", lanes=16, steps=min(steps, 20_000))
    print(f"probe:both: {probe.result['eval_return']:.2f} (1 is the best)")
    for plan in ("all", "actor*2 | learner"):
        with rondel.train(here, "CartPole-v1", lanes=16, plan=plan, steps=steps) as run:
            print(f"CartPole-v1 by {plan}: mean return {run.return_mean:.4f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
