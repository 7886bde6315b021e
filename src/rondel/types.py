"""The records that stages consist of and exchange.

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
WINDOW = 100  # finished episodes that a mean return is of


class EnvSpec(NamedTuple):
    """What an algorithm needs to know about an environment."""

    id: str  # with its world: "jax:CartPole-v1"
    observation: Space
    action: Space
    lanes: int = 1  # environments side by side, in all copies together


class Step(NamedTuple):
    """The result of a step in b lanes; of host environments in NumPy.

    Done at t (`terminated` or `truncated`): `obs` is the last one of the episode. The next step
    ignores its action and only resets: `first` is True and `reward` 0 there.
    """

    obs: Tree  # [b, ...]
    reward: Array  # [b] float32
    terminated: Array  # [b] bool
    truncated: Array  # [b] bool: cut off, for example by a time limit
    first: Array  # [b] bool: `obs` is the first of an episode
    episode_return: Array  # [b] float32: sum of the episode's rewards up to here
    # [b] int32: its steps up to here; 0 at an end that does not count as one (a lost life)
    episode_length: Array


class Game(NamedTuple):
    """The rules of a turn-based two-player game, for algorithms that search.

    Pure functions over lanes, from the view of the player whose turn it is. An observation holds
    the whole state: `state(observe(s))` continues as `s` does. What a player does not see of it is
    in a part of its own, `spaces.STATE`.
    """

    start: Callable[[int], Tree]  # (b) -> state [b, ...], before the first move
    # (state, action [b]) -> (state, reward [b] of who moved, ended [b]); an illegal move loses
    step: Callable[[Tree, Array], tuple[Tree, Array, Array]]
    observe: Callable[[Tree], Tree]  # (state) -> obs, with a mask of legal moves
    state: Callable[[Tree], Tree]  # (obs) -> state
    # is a step of the environment one move? Else it includes the opponent's reply
    self_play: bool = True


class Env(NamedTuple):
    """A traceable environment: pure functions over all lanes at once."""

    spec: EnvSpec
    init: Callable[[Array], tuple[Tree, Step]]  # (keys[b]) -> (state, step)
    step: Callable[[Tree, Array], tuple[Tree, Step]]  # (state, action[b]) -> (state, step)
    # (state): frees lanes that live outside of JAX
    close: Callable[[Tree], None] | None = None
    game: Game | None = None  # the rules of a two-player game
    # (state of one lane, in NumPy) -> picture [height, width, 3] uint8
    draw: Callable[[Tree], Any] | None = None

    @property
    def pure(self) -> bool:
        """Does the state hold all of a lane?

        Else it is a handle: `init` is called outside of programs, all lanes of a copy step at once
        and in order, and checkpoints hold none of it.
        """
        return self.close is None


class HostEnv(Protocol):
    """Some lanes of an environment outside JAX, in NumPy."""

    def reset(self, seeds: Any) -> Step:
        """Start an episode in every lane; seeds[i], below 2**31, is for lane i."""

    def step(self, action: Any) -> Step:
        """Step every lane; the step after an episode's end only resets that lane."""

    def close(self) -> None:
        """Free the lanes' resources."""


class ShownEnv(HostEnv, Protocol):
    """One lane of a host environment that can be drawn."""

    def picture(self) -> Any:
        """The current picture [height, width, 3] uint8; None if there is none."""


class HostWorld(NamedTuple):
    """A source of host environments.

    `make(b, first_lane)` makes lanes first_lane, first_lane + 1, … of the run, b in all. The number
    is for messages; what happens in a lane depends on its seed alone. `show()` makes one lane that
    can be drawn.
    """

    spec: EnvSpec
    make: Callable[[int, int], HostEnv]
    show: Callable[[], ShownEnv] | None = None


class Trajectory(NamedTuple):
    """The rows of a round: O rows of the round before, then T new ones.

    Row t: in `obs[t]` the policy took `action[t]`, which gave `reward[t]` and `obs[t + 1]`.
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
    extras: Tree  # [O+T, b, ...]: from `act`
    carry: Tree  # [b, ...]: before row 0
    lane: Array  # [b]


class Memory(NamedTuple):
    """The store of items to learn from: pure functions over preallocated arrays.

    An items or batch record keeps observations in fields named `obs` and `next_obs` (wrappers
    rely on it).
    """

    # (items_like [b, ...], shards) -> memory of one shard
    init: Callable[[Tree, int], Tree]
    # (memory, items [b, ...], key) -> memory
    add: Callable[[Tree, Tree, Array], Tree]
    # (memory, key, j) -> (batch, ticket): the j-th draw of the round; only reads
    draw: Callable[[Tree, Array, Array], tuple[Tree, Tree]]
    # (memory, ticket, feedback [rows]) -> memory; NaN: no feedback on that row
    rank: Callable[[Tree, Tree, Tree], Tree]
    draws: int  # K, the draws of a round
    warmup_rounds: int = 0  # rounds that only add


def _unchanged(state: Tree, summary: Tree) -> Tree:
    del summary
    return state


def _nothing(lane: Array) -> Tree:
    del lane
    return ()


class Algorithm(NamedTuple):
    """The functions of the stages, without processes, devices, files or time."""

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
    absorb: Callable[[Tree, Tree], Tree] = _unchanged
    # (lane [b]) -> carry [b, ...]: the state of a lane within an episode
    carry: Callable[[Array], Tree] = _nothing
    # (weights, key, lane [b]) -> own [b, ...]: data of a lane for one round, made at its start and
    # given to `act`; outside of rounds `act` is called without it
    start: Callable[[Tree, Array, Array], Tree] | None = None
    # (variables, batch [n, ...], keys [n]) -> batch [n, ...] for `gradient`, row by row: expensive
    # targets; variables are those at the start of the round's learning
    label: Callable[[Tree, Tree, Array], Tree] | None = None
    overlap: int = 0  # O
    fresh: bool = False  # every round starts new episodes and drops unfinished ones
    max_lag: int | None = 0  # most rounds by which the acting weights may be old; None: any


class Network(NamedTuple):
    """A function approximator: any JAX network library's pair of functions."""

    init: Callable[[Array], Tree]  # (key) -> params
    apply: Callable[[Tree, Tree], Array]  # (params, obs [b, ...]) -> [b, outputs]
