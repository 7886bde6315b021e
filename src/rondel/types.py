"""The records that the stages are made of and exchange.

Shapes: T steps of a round, B lanes in all, b lanes of one piece, O rows of overlap. A tree is
any nest of dicts, tuples and records with arrays at its leaves. Nothing here imports jax at run
time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from rondel.spaces import Space

if TYPE_CHECKING:
    import jax

Array: TypeAlias = "jax.Array"
Tree: TypeAlias = Any


class EnvSpec(NamedTuple):
    """What an algorithm must know of an environment."""

    id: str  # with the world that it comes from: "jax:CartPole-v1"
    observation: Space
    action: Space
    lanes: int = 1  # how many run side by side, in all copies together


class Step(NamedTuple):
    """What an environment says after each step, in b lanes; host environments say it in NumPy.

    Done at t (`terminated` or `truncated`): `obs` is the last one of the episode. The next step
    ignores its action and only resets: `first` is True and `reward` 0 there.
    """

    obs: Tree  # [b, ...]
    reward: Array  # [b] float32
    terminated: Array  # [b] bool
    truncated: Array  # [b] bool: cut off, by a time limit for one, with a future left
    first: Array  # [b] bool: `obs` is the first of an episode
    episode_return: Array  # [b] float32: sum of the episode's rewards up to here
    # [b] int32: its steps up to here; 0 at an end that does not count as one (a lost life)
    episode_length: Array


class Game(NamedTuple):
    """The rules of a game for two who move in turns, for algorithms that look ahead.

    Pure functions over lanes, from the view of the player whose turn it is. An observation holds
    all that there is to know: `state(observe(s))` goes on as `s` does. Where that is more than
    what a player sees, it is in a part of its own, `spaces.STATE`.
    """

    start: Callable[[int], Tree]  # (b) -> state [b, ...]: nobody has moved
    # (state, action [b]) -> (state, reward [b] of who moved, ended [b]); an illegal move loses
    step: Callable[[Tree, Array], tuple[Tree, Array, Array]]
    observe: Callable[[Tree], Tree]  # (state) -> obs, with a mask of what is legal
    state: Callable[[Tree], Tree]  # (obs) -> state
    # is a step of the environment one move? Else the opponent's reply is part of it
    self_play: bool = True


class Env(NamedTuple):
    """A traceable environment: pure functions over all lanes at once."""

    spec: EnvSpec
    init: Callable[[Array], tuple[Tree, Step]]  # (keys[b]) -> (state, step)
    step: Callable[[Tree, Array], tuple[Tree, Step]]  # (state, action[b]) -> (state, step)
    # (state): frees lanes that are outside of JAX, where they are
    close: Callable[[Tree], None] | None = None
    game: Game | None = None  # its rules, where it is a game for two
    # (state of one lane, in NumPy) -> picture [height, width, 3] uint8: for those who watch
    draw: Callable[[Tree], Any] | None = None

    @property
    def pure(self) -> bool:
        """Is a lane's state all that it is?

        Else the state is a handle: `init` is called outside of programs, all lanes of a copy step
        at once and in order, and none of it is kept in a checkpoint.
        """
        return self.close is None


class HostEnv(Protocol):
    """An environment outside JAX, in NumPy: some lanes of it."""

    def reset(self, seeds: Any) -> Step:
        """Start an episode in every lane; seeds[i], below 2**31, is for lane i."""

    def step(self, action: Any) -> Step:
        """One step in every lane; the step after an episode's end only resets that lane."""

    def close(self) -> None:
        """Free what the lanes hold."""


class ShownEnv(HostEnv, Protocol):
    """One lane of a host environment that can be looked at."""

    def picture(self) -> Any:
        """How it looks now, [height, width, 3] uint8; None where it has no picture to offer."""


class HostWorld(NamedTuple):
    """Where host environments come from.

    `make(b, first_lane)` gives b lanes of it, which are lanes first_lane, first_lane + 1, … of the
    run. That place is for messages; what happens in a lane depends on its seed alone. `show()`
    gives one lane with pictures, for those who watch.
    """

    spec: EnvSpec
    make: Callable[[int, int], HostEnv]
    show: Callable[[], ShownEnv] | None = None


class Trajectory(NamedTuple):
    """What a round recorded: O rows of the round before, then T new ones.

    Row t: the policy saw `obs[t]` and did `action[t]`, which gave `reward[t]` and `obs[t + 1]`.
    Where `valid[t]` is False the step only reset the lane, or there was no such row (overlap of
    the first round).
    """

    obs: Tree  # [O+T+1, b, ...]
    first: Array  # [O+T+1, b]
    action: Array  # [O+T, b, ...]
    reward: Array  # [O+T, b]
    terminated: Array  # [O+T, b]
    truncated: Array  # [O+T, b]
    valid: Array  # [O+T, b]
    extras: Tree  # [O+T, b, ...]: what `act` noted
    carry: Tree  # [b, ...]: before row 0
    lane: Array  # [b]


class Memory(NamedTuple):
    """Where items wait to be learned from: pure functions over preallocated arrays.

    An items or batch record keeps observations in fields named `obs` and `next_obs` (wrappers
    rely on it).
    """

    # (items_like [b, ...], shards) -> memory of one shard
    init: Callable[[Tree, int], Tree]
    # (memory, items [b, ...], key) -> memory
    add: Callable[[Tree, Tree, Array], Tree]
    # (memory, key, j) -> (batch, ticket): the j-th draw of the round; only reads
    draw: Callable[[Tree, Array, Array], tuple[Tree, Tree]]
    # (memory, ticket, feedback [rows]) -> memory; NaN: no word on that row
    rank: Callable[[Tree, Tree, Tree], Tree]
    draws: int  # K, the draws of a round
    warmup_rounds: int = 0  # rounds that only add


def _same_state(state: Tree, summary: Tree) -> Tree:
    del summary
    return state


def _nothing(lane: Array) -> Tree:
    del lane
    return ()


class Algorithm(NamedTuple):
    """What the stages compute. It knows nothing of processes, devices, files or time."""

    # (key) -> state
    init: Callable[[Array], Tree]
    # (state) -> weights: all that acting needs
    acting: Callable[[Tree], Tree]
    # (state) -> variables: all that `gradient` and `label` need
    learning: Callable[[Tree], Tree]
    # (variables, batch, key) -> (grads, weight, feedback [rows], metrics)
    gradient: Callable[[Tree, Tree, Array], tuple[Tree, Array, Tree, dict[str, Array]]]
    # (state, grads) -> state
    update: Callable[[Tree, Tree], Tree]
    # (weights, carry, obs [b, ...], keys [b], explore[, own]) -> (action, carry, extras)
    act: Callable[..., tuple[Array, Tree, Tree]]
    # (weights, trajectory) -> (items [b, ...], summary [b, ...]): where the policy runs
    prepare: Callable[[Tree, Trajectory], tuple[Tree, Tree]]
    memory: Memory
    rollout: int  # T
    # (state, summary [B, ...]) -> state: once a round, before learning
    absorb: Callable[[Tree, Tree], Tree] = _same_state
    # (lane [b]) -> carry [b, ...]: what a lane remembers within an episode
    carry: Callable[[Array], Tree] = _nothing
    # (weights, key, lane [b]) -> own [b, ...]: what a lane has of its own for a round, made at the
    # round's start and handed to `act`; outside of rounds `act` is called without it
    start: Callable[[Tree, Array, Array], Tree] | None = None
    # (variables, batch [n, ...], keys [n]) -> batch [n, ...] for `gradient`, each row for itself:
    # targets that are dear to compute; variables are those at the start of the round's learning
    label: Callable[[Tree, Tree, Array], Tree] | None = None
    overlap: int = 0  # O
    fresh: bool = False  # every round starts new episodes; those that have not ended are left
    max_lag: int | None = 0  # how old the weights may be that acted; None: any


class Network(NamedTuple):
    """A function approximator: any JAX network library's pair of functions."""

    init: Callable[[Array], Tree]  # (key) -> params
    apply: Callable[[Tree, Tree], Array]  # (params, obs [b, ...]) -> [b, outputs]
