"""R2D2: a recurrent Q-network, replayed in sequences with their recurrent states.

Kapturowski et al., Recurrent Experience Replay in Distributed Reinforcement Learning, ICLR 2019. It
is Ape-X with a recurrent cell: actors store its state before each sequence, and learners first run
over `burn_in` rows to update that state with their own weights. Values are on the scale of
`rescale`. Unlike the paper's, the cell sees the last action but not the last reward.
Sequences of a batch are [n, L, ...] in memory and time first, [L, n, ...], here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rondel.algorithms import dqn
from rondel.errors import RondelError, at_least, one_of
from rondel.formatting import join_words
from rondel.memory.sequences import SequenceBatch, Stretch, sequences
from rondel.nets.noisy import with_noise
from rondel.nets.recurrent import CELLS, Recalled, RecurrentValues, make_cell, recurrent_values
from rondel.ops.optimisers import adam
from rondel.ops.return_distributions import Misfit, ReturnModel
from rondel.ops.returns import n_step_returns, swap_time
from rondel.ops.statistics import masked_mean
from rondel.types import Algorithm, Array, EnvSpec, Memory, Network, Trajectory, Tree

CARD = dqn.CARD._replace(
    paper="Recurrent Experience Replay in Distributed Reinforcement Learning, ICLR 2019",
    plan="actor*4 | memory*2 | gradient+update",  # with a lag; `--plan apex` has one of 2, and free
    lanes=32,
)


@dataclass(frozen=True)
class Config(dqn.Config):
    """DQN's fields, with defaults for the paper's structure, and those of sequences."""

    rollout: int = 40  # steps that each lane takes in a round
    updates: int = 2  # gradient steps per round
    batch: int = 64  # sequences per gradient step
    capacity: int = 500_000  # steps kept in memory
    warmup: int = 10_000  # environment steps before the first gradient step
    learning_rate: float = 1e-4  # Adam's step size
    discount: float = 0.997  # discount of a reward per step
    n_step: int = 5  # rewards summed before bootstrapping
    dueling: bool = True  # separate streams for state value and advantages
    prioritised: bool = True  # draw by error instead of uniformly
    priority_exponent: float = 0.9  # 0: uniform, 1: proportional to the error
    importance_start: float = 0.6  # initial exponent of the importance weights; it grows to 1
    target_every: int = 2_500  # gradient steps between updates of the target network
    epsilon_start: float = 0.4  # initial share of random actions
    epsilon_end: float = 0.4  # final share of random actions
    ladder: float = 7.0  # α: lane i of N has epsilon ** (1 + α i / (N - 1)); 0: one epsilon for all
    returns: str = "rescaled"  # model of returns: mean, categorical, quantile, rescaled
    max_grad_norm: float = 40.0  # gradients are clipped to this norm
    memory: str = "lstm"  # recurrent cell: gru, lstm
    memory_size: int = 128  # width of the recurrent cell
    sequence: int = 80  # steps of a training sequence
    overlap: int = 40  # steps of it that the next sequence also has
    burn_in: int = 40  # steps before it that only update the recurrent state
    priority_mix: float = 0.9  # η: a sequence's priority is η max|td| + (1 - η) mean|td|

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(2, sequence=self.sequence)
        if self.memory == "none":
            raise RondelError("memory must be gru or lstm, got 'none'. Use apex without memory.")
        one_of(CELLS, memory=self.memory)
        fits = [n for n in range(self.sequence) if self.length % (self.sequence - n) == 0]
        if self.overlap not in fits:
            raise RondelError(
                f"sequence - overlap must divide burn_in + sequence, {self.length}, got "
                f"overlap={self.overlap}. Use {join_words(fits, 'or')}."
            )
        if self.rollout % self.stride:
            raise RondelError(
                f"rollout must be a multiple of sequence - overlap, {self.stride}, got "
                f"{self.rollout}. Use {-(-self.rollout // self.stride) * self.stride}."
            )

    @property
    def length(self) -> int:
        """Steps that memory keeps together."""
        return self.burn_in + self.sequence

    @property
    def stride(self) -> int:
        """Steps between the beginnings of neighbouring sequences."""
        return self.sequence - self.overlap


class Rows(NamedTuple):
    """Steps: [b, T, ...] for memory, [L, n, ...] for learning."""

    obs: Tree
    first: Array
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array


class Carry(NamedTuple):
    """The state of a lane [b, ...]."""

    rung: Tree  # exponent of epsilon, constant
    recalled: Recalled  # of the episode


class Noted(NamedTuple):
    """Extras of each step [b, ...]."""

    out: Array  # the network's outputs
    recalled: Recalled  # before the step
    key: Array  # [b, 2] uint32: the key of the step, unique among lanes and steps


class Model(NamedTuple):
    network: RecurrentValues
    returns: ReturnModel  # the meaning of its outputs


def act(
    config: Config,
    model: Model,
    weights: dqn.Weights,
    carry: Carry,
    obs: Tree,
    keys: Array,
    explore: bool,
) -> tuple[Array, Carry, Noted]:
    """The best action, or with probability epsilon a random one that is allowed."""
    params = with_noise(weights.params, keys) if explore else weights.params
    cell, out = model.network.step(params, carry.recalled, obs)
    epsilon = dqn.epsilon_of(config, weights, carry.rung) if explore else None
    action = dqn.epsilon_greedy(dqn.q_of(model.returns, out, obs), obs, keys, epsilon)
    noted = Noted(out, carry.recalled, jax.random.key_data(keys))
    return action, carry._replace(recalled=Recalled(cell, action)), noted


def prepare(
    config: Config, model: Model, weights: dqn.Weights, tr: Trajectory
) -> tuple[Stretch, Array]:
    """The round's new rows, with initial priorities of sequences that end in it, and its steps.

    The rows before them are those that such a sequence began with. All outputs are in the extras,
    by the weights that acted.
    """
    del weights
    obs = jax.tree.map(lambda x: x[:-1], tr.obs)
    ends = tr.terminated, tr.truncated, tr.valid
    rows = Rows(obs, tr.first[:-1], tr.action, tr.reward, *ends)
    before = config.length - config.stride
    recalled = jax.tree.map(lambda x: x[before :: config.stride], tr.extras.recalled)
    priority = None
    if config.prioritised:  # by the actor's outputs
        priority = _first_priorities(config, model.returns, rows, tr.extras.out)
    new = jax.tree.map(lambda x: x[before:], rows)
    edge = tr.extras.key[jnp.array([before - 1, -1])]
    items: Stretch = swap_time(Stretch(new, recalled, priority, edge if before else ()))
    return items, new.valid.sum(0)


def _first_priorities(config: Config, returns: ReturnModel, rows: Rows, out: Array) -> Array:
    """Priorities of the sequences that begin at every stride [T / S, b]."""
    begin = jnp.arange(0, config.rollout, config.stride)
    row = begin[None] + jnp.arange(config.burn_in, config.length)[:, None]  # [m, T / S]

    def cut(x: Array) -> Array:
        x = x[row]
        return x.reshape(x.shape[0], -1, *x.shape[3:])

    rows, out = jax.tree.map(cut, (rows, out))
    misfit, valid = misfits(config, returns, rows, out, out, out)
    return priority_of(config.priority_mix, misfit.priority, valid).reshape(len(begin), -1)


def priority_of(mix: float, error: Array, valid: Array) -> Array:
    """η max|td| + (1 - η) mean|td| over the valid rows [m, n] of each sequence [n]."""
    error = jnp.where(valid, error, 0.0)
    mean = error.sum(0) / jnp.maximum(valid.sum(0), 1)
    return mix * error.max(0) + (1.0 - mix) * mean


def misfits(
    config: Config, returns: ReturnModel, rows: Rows, out: Array, target: Array, chooser: Array
) -> tuple[Misfit, Array]:
    """The errors of `out` in all rows but the last, and which of these are valid: [m - 1, n].

    Outputs are [m, n, ...]: n-step targets take those of `target` for the best actions by
    `chooser`. Where there is no next row, at the end or where a lane was restarted, a chain of
    rewards ends as at a truncation.
    """
    rows_ahead = jnp.concatenate([rows.valid[1:-1], jnp.zeros_like(rows.valid[:1])])
    truncated = rows.truncated[:-1] | ~rows_ahead
    known = rows.reward[:-1], rows.terminated[:-1], truncated, rows.valid[:-1]
    reward, ended, cut, valid = (jnp.pad(x, ((0, config.n_step - 1), (0, 0))) for x in known)
    reward, discount, offset, valid = n_step_returns(
        reward, ended, cut, valid, config.discount, config.n_step
    )
    best = returns.of(target, dqn.q_of(returns, chooser, rows.obs).argmax(-1))
    taken = returns.of(out[:-1], rows.action[:-1])
    return dqn.misfit_along(returns, taken, reward, discount, offset, best), valid


def values(
    config: Config, network: RecurrentValues, params: Tree, recalled: Recalled, rows: Rows
) -> Array:
    """A network's outputs for the rows after the burn-in [m, n, ...]."""

    def unroll(recalled: Recalled, rows: Rows) -> tuple[Array, Recalled]:
        return network.unroll(params, recalled, rows.obs, rows.action, rows.first)

    if config.burn_in:  # the state before the row after it
        warming = jax.tree.map(lambda x: x[: config.burn_in + 1], rows)
        _, each = unroll(recalled, warming)
        recalled = jax.lax.stop_gradient(jax.tree.map(lambda x: x[-1], each))
    return unroll(recalled, jax.tree.map(lambda x: x[config.burn_in :], rows))[0]


def loss(
    config: Config,
    model: Model,
    params: Tree,
    variables: dqn.Variables,
    batch: SequenceBatch,
    key: Array,
) -> tuple[Array, tuple[Misfit, Array, Array]]:
    """The weighted loss, with each row's errors, validity and value.

    Noisy layers draw one noise for all rows, and another for each network.
    """
    returns, rows = model.returns, swap_time(batch.rows)
    noisy = with_noise(params, key), with_noise(variables.target, key, 1)
    out, target = (values(config, model.network, p, batch.carry, rows) for p in noisy)
    learned = jax.tree.map(lambda x: x[config.burn_in :], rows)
    chooser = jax.lax.stop_gradient(out) if config.double else target
    misfit, valid = misfits(config, returns, learned, out, target, chooser)
    weight = dqn.importance_weights(batch.ratio, variables.importance, valid.any(0))
    cost = masked_mean(weight[None] * misfit.loss, valid)
    taken = returns.of(out, learned.action)[:-1]
    return cost, (misfit, valid, returns.mean(taken))


def gradient(
    config: Config, model: Model, variables: dqn.Variables, batch: SequenceBatch, key: Array
) -> Tree:
    """The gradient of the loss, with new priorities of sequences as feedback to memory."""
    value_and_grad = jax.value_and_grad(partial(loss, config, model), has_aux=True)
    (value, (misfit, valid, worth)), grads = value_and_grad(variables.params, variables, batch, key)
    metrics = {
        "loss/q": value,
        "q": masked_mean(worth, valid),
        "td_error": masked_mean(jnp.abs(misfit.td), valid),
        "grad_norm": optax.tree.norm(grads),
    }
    feedback = priority_of(config.priority_mix, misfit.priority, valid)
    return grads, valid.sum().astype(jnp.float32), feedback, metrics


def network_for(
    config: Config, spec: EnvSpec, actions: int, own: Network | None = None
) -> RecurrentValues:
    return recurrent_values(
        *dqn.torso_for(config, spec, own),
        actions,
        partial(make_cell, config.memory, size=config.memory_size),
        lambda torso, width: dqn.values_behind(config, torso, width, actions),
    )


def memory_for(config: Config, spec: EnvSpec) -> Memory:
    exponent = config.priority_exponent if config.prioritised else None
    warmup = max(config.warmup, spec.lanes * config.length)  # before that no sequence is complete
    sizes = config.capacity, config.batch, config.updates, config.length, config.stride
    rounds = math.ceil(warmup / (spec.lanes * config.rollout))
    return sequences(*sizes, exponent, rounds, spec.observation)


def make(config: Config, spec: EnvSpec, network: Network | None = None) -> Algorithm:
    """R2D2 for discrete actions; `network` is the user's own torso, if any."""
    actions = dqn.actions_of(config, spec)
    model = Model(network_for(config, spec, actions, network), dqn.returns_for(config))
    optimiser = adam(config.max_grad_norm)

    def carry(lane: Array) -> Carry:
        return Carry(dqn.rungs(config, spec.lanes, lane), model.network.start(lane.shape[0]))

    return Algorithm(
        init=partial(dqn.init, model.network.init, optimiser),
        acting=partial(dqn.acting, config),
        learning=partial(dqn.learning, config),
        absorb=partial(dqn.absorb, config),
        gradient=partial(gradient, config, model),
        update=partial(dqn.update, config, optimiser),
        act=partial(act, config, model),
        prepare=partial(prepare, config, model),
        memory=memory_for(config, spec),
        rollout=config.rollout,
        carry=carry,
        overlap=config.length - config.stride,
        max_lag=CARD.max_lag,
    )
