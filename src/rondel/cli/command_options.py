"""What each command takes, as records: a field is a flag, and its comment is what help says."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal, TypeAlias

import tyro

from rondel.execution.backends import registry
from rondel.run.setup.prepare import Options
from rondel.run.training import train

On: TypeAlias = Annotated[
    str | None, tyro.conf.arg(help_behavior_hint=lambda _: f"({' | '.join(registry.names())})")
]
# several are several flags, so that nothing that follows is taken for one more
Log: TypeAlias = Annotated[tuple[Literal["tensorboard", "wandb"], ...], tyro.conf.UseAppendAction]


@dataclasses.dataclass(frozen=True)
class Train:
    """Train an agent."""

    steps: int = train.STEPS  # environment steps
    seed: int = 0  # where all randomness comes from
    seeds: int | None = None  # train so many, from `seed` on, each a run in a folder of its own
    out: str | None = None  # the run's folder; by default a new one under runs/
    until_return: float | None = None  # stop when the last 100 episodes reach this mean return
    eval_episodes: int = 100  # greedy episodes at the end
    log: Log = ()  # where metrics go besides metrics.jsonl; may be given twice
    tuned: bool = True  # start from the tuned settings for this environment, if there are any
    json: bool = False  # print the result as one JSON object, and all else on stderr


@dataclasses.dataclass(frozen=True)
class Flags(Options):
    """`Options` as flags: to learn freely or not is a pair of them, of which none may be given."""

    free: bool = False  # learn from what comes first, the lag a bound; by default the plan's
    on: On = None  # the backend; by default processes for a cut plan, else inline


@dataclasses.dataclass(frozen=True)
class Explain:
    """Say what would run, and what would pass between its pieces. Nothing runs.

    Flags of `train` that change none of it, such as --steps and --out, may stay.
    """

    tuned: bool = True  # start from the tuned settings for this environment, if there are any
    json: bool = False  # print it as one JSON object


@dataclasses.dataclass(frozen=True)
class Resume:
    """Go on with a run from its newest checkpoint, or from the one given."""

    path: tyro.conf.Positional[str]  # the folder of a run or of seeds, or one of its checkpoints
    steps: int | None = None  # the new total of environment steps; by default that of the run
    env: str | None = None  # the environment's id, where it is in a module of your own
    network: str | None = None  # module:function, where the run has a network of your own
    until_return: float | None = None  # stop when the last 100 episodes reach this mean return
    eval_episodes: int | None = None  # greedy episodes at the end; by default as many as before
    plan: str | None = None  # another plan to go on with; by default that of the run, as below
    lag: int | None = None  # rounds that the acting weights may be behind
    free: bool = False  # learn from what comes first, the lag a bound; by default as before
    on: On = None  # the backend; by default that of the run
    resources: str | None = None  # what pieces ask of Ray
    address: str | None = None  # of a Ray cluster that runs
    deadline: float | None = None  # seconds for an answer: a copy that takes longer starts again
    restarts: int | None = None  # of a copy that died or hangs, without getting any further
    log: Log = ()  # where metrics go besides metrics.jsonl; may be given twice
    json: bool = False  # print the result as one JSON object, and all else on stderr


@dataclasses.dataclass(frozen=True)
class Eval:
    """Greedy episodes in fresh environments."""

    path: tyro.conf.Positional[str]  # the folder of a run, or one of its checkpoints
    episodes: int = 100  # how many to play
    env: str | None = None  # another environment to play in, or the one of your own again
    network: str | None = None  # module:function, where the run has a network of your own
    seed: int = 0  # where the environments' randomness comes from
    deadline: float | None = None  # seconds that an environment may take for an answer
    json: bool = False  # print the result as one JSON object, and all else on stderr


@dataclasses.dataclass(frozen=True)
class Watch:
    """A video of greedy episodes, with a caption of step and return."""

    path: tyro.conf.Positional[str]  # the folder of a run, or one of its checkpoints
    out: str | None = None  # a .gif or an .mp4; by default a new .gif in the run's folder
    checkpoint: int | None = None  # the number of one of its checkpoints; by default the newest
    episodes: int = 1  # how many to play
    env: str | None = None  # another environment to play in, or the one of your own again
    network: str | None = None  # module:function, where the run has a network of your own
    seed: int = 0  # where the environments' randomness comes from
    steps: int = 1_000  # of an episode that are shown at the most
    fps: int = 30  # pictures a second
    deadline: float | None = None  # seconds that an environment may take for an answer
    overwrite: bool = False  # a file that is there already
    json: bool = False  # print the result as one JSON object, and all else on stderr


@dataclasses.dataclass(frozen=True)
class Profile:
    """Where a run's time went: a table, and what it means."""

    path: tyro.conf.Positional[str]  # the folder of a run
    apart: bool = True  # run it for some rounds more, to time stages that are one program
    env: str | None = None  # the environment's id, where it is in a module of your own
    network: str | None = None  # module:function, where the run has a network of your own
    trace: str | None = None  # a file for its newest events, which Perfetto and Chrome show
    overwrite: bool = False  # a trace that is there already


@dataclasses.dataclass(frozen=True)
class Plot:
    """Learning curves of runs in one picture; runs that differ by their seed are one line."""

    paths: tyro.conf.Positional[tuple[str, ...]]  # folders of runs, or folders that hold some
    out: str = "curves.png"  # the picture's file, a .png; an earlier curves.png is replaced
    against: Literal["steps", "seconds", "both"] = "both"  # what is across
    iqm: bool = False  # the interquartile mean of the seeds, not the mean
    overwrite: bool = False  # a file that is there already


@dataclasses.dataclass(frozen=True)
class Compare:
    """Which runs are ahead, as a table in Markdown; a winner is named where intervals allow it."""

    paths: tyro.conf.Positional[tuple[str, ...]]  # folders of runs, or folders that hold some
    iqm: bool = False  # the interquartile mean of the seeds, not the mean


@dataclasses.dataclass(frozen=True)
class Record:
    """Write greedy episodes of what a run has learned into a file, as demonstrations."""

    path: tyro.conf.Positional[str]  # the folder of a run, or one of its checkpoints
    file: tyro.conf.Positional[str]  # where to write
    episodes: int = 100  # how many to play
    seed: int = 0  # where the environment's randomness comes from
    env: str | None = None  # another environment than the one it was trained in
    network: str | None = None  # your own as module:function, if the run had one
    deadline: float | None = None  # seconds that an environment may take for an answer
    overwrite: bool = False  # put them in the place of a file that is there
