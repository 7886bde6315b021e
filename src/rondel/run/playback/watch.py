"""Videos of a policy: `watch` plays greedy episodes and draws each step.

The episodes are the first ones that `evaluate` plays in each lane with the same seed. A picture is
drawn by the environment (`Env.draw`, `ShownEnv.picture`), or else an image that the policy sees.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rondel.envs.obs_image import observation_image
from rondel.envs.registry import equivalents, world_of
from rondel.errors import RondelError, at_least
from rondel.execution.hostenv.seeds import Purpose
from rondel.execution.stages.task import to_device
from rondel.ops.random import purpose_key
from rondel.run.playback import video
from rondel.run.playback.evaluate import opened
from rondel.run.playback.single_env import SingleEnv, single_env
from rondel.run.policy.evaluation import greedy
from rondel.run.policy.policy import Policy
from rondel.run.session.run import Run
from rondel.run.storage import locate, run_folder
from rondel.types import Env, HostWorld, Step


class Video(NamedTuple):
    """A video's file, and the return and length of each episode in it."""

    path: Path
    returns: list[float]
    lengths: list[int]
    unfinished: int  # episodes that were cut off after `steps`


class Moment(NamedTuple):
    """An episode after one of its steps."""

    episode: int
    step: int
    total: float  # of its rewards so far
    over: bool
    picture: np.ndarray  # [height, width, 3] uint8


def watch(
    what: Run | Policy | str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    env: Any = None,
    episodes: int = 1,
    seed: int = 0,
    steps: int = 1_000,
    fps: int = 30,
    overwrite: bool = False,
    algorithm: Any = None,
    config: Any = None,
    network: Any = None,
    deadline: float | None = None,
) -> Video:
    """Write a video of greedy episodes of a run, a policy, or a run's folder.

    `out` ends in .gif or .mp4; by default it is a new .gif in the run's folder, or in the current
    one. It shows at most `steps` of an episode. The rest is as in `evaluate`.

    >>> rondel.watch("runs/first", "first.gif", episodes=3).returns
    """
    at_least(1, episodes=episodes, steps=steps)
    path = _unused_name(_home(what)) if out is None else Path(out)
    video.check(path, fps, overwrite)
    returns, lengths, ended = [0.0] * episodes, [0] * episodes, [False] * episodes

    def images() -> Generator[Any, None, None]:
        with opened(what, env, algorithm, config, network, deadline) as (policy, world):
            for moment in moments(policy, world, episodes, seed, steps):
                at = moment.episode
                returns[at], lengths[at], ended[at] = moment.total, moment.step, moment.over
                image = video.framed(moment.picture, _caption(moment))
                last = moment.over or moment.step == steps
                yield from [image] * (1 + fps // 2 * last)  # stay half a second at its end

    with _pygame_without_screen(), closing(images()) as frames:
        video.write(frames, path, fps)
    return Video(path, returns, lengths, ended.count(False))


@contextmanager
def _pygame_without_screen() -> Iterator[None]:
    """Keep pygame from complaining on stderr that there is no sound and no screen.

    Wayland complains if it has no folder, so it gets an empty one. What the user has set stays.
    """
    with ExitStack() as stack:
        wanted = {"SDL_AUDIODRIVER": "dummy"}
        with suppress(OSError):  # no folder can be made: then it complains
            empty = TemporaryDirectory(prefix="rondel-", ignore_cleanup_errors=True)
            wanted["XDG_RUNTIME_DIR"] = stack.enter_context(empty)
        new = {name: value for name, value in wanted.items() if name not in os.environ}
        os.environ.update(new)
        try:
            yield
        finally:
            for name in new:
                os.environ.pop(name, None)


def moments(
    policy: Policy, world: Env | HostWorld, episodes: int, seed: int, steps: int
) -> Iterator[Moment]:
    """Greedy episodes one after the other, each from its start, for at most `steps`."""
    algorithm, key = policy.algorithm, purpose_key(seed, Purpose.EVALUATE, 1)
    act = jax.jit(partial(greedy, algorithm))
    with closing(single_env(world, seed, shown=True)) as lane:
        for episode in range(episodes):
            number = jnp.array([episode], jnp.int32)
            step, carry = lane.begin(episode), algorithm.carry(number)
            yield Moment(episode, 0, 0.0, False, _picture(world, lane, step))
            taken = t = 0
            over = False
            while taken < steps and not over:
                action, carry = act(policy.weights, carry, to_device(step), key, number, t)
                step = lane.step(np.asarray(action))
                t, taken = t + 1, taken + (not step.first[0])
                done = step.terminated[0] | step.truncated[0]
                over = bool(done) and int(step.episode_length[0]) > 0  # and not a lost life
                picture = _picture(world, lane, step)
                yield Moment(episode, taken, float(step.episode_return[0]), over, picture)


def _picture(world: Env | HostWorld, lane: SingleEnv, step: Step) -> np.ndarray:
    """The environment's own drawing, or else an image that the policy sees."""
    spec, picture = world.spec, lane.picture()
    if picture is None:
        seen = observation_image(
            spec.observation, jax.tree.map(lambda x: np.asarray(x)[0], step.obs)
        )
        if seen is None:
            raise RondelError(f"{spec.id} has no picture to show. {_advice(world)}")
        return seen
    picture = np.asarray(picture)
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[-1] != 3:
        raise RondelError(
            f"{spec.id} must be drawn as uint8 of shape (height, width, 3), got {picture.dtype} of "
            f"shape {picture.shape}."
        )
    return picture


def _advice(world: Env | HostWorld) -> str:
    """How to get a picture of an environment."""
    origin, name = world_of(world.spec.id), world.spec.id.partition(":")[2]
    if origin is not None and origin.on_host:
        return f"Use the same game outside of the program: --env {origin.on_host}:{name}."
    if drawn := next((there.id for w, there in equivalents(world.spec.id) if w.draws), ""):
        return f"Use the same environment in JAX: --env {drawn}."
    if origin is not None and origin.picture_hint:
        return origin.picture_hint
    if isinstance(world, Env):
        return (
            "Give it one: a function draw(state of one lane) that returns a uint8 array of shape "
            "(height, width, 3), as draw=… of `episodic` or of `Env`."
        )
    return (
        'Give it one: "rgb_array" among the render_modes of its metadata, a render_mode that its '
        "__init__ takes, and a render() that returns a uint8 array of shape (height, width, 3)."
    )


def _caption(moment: Moment) -> str:
    ended = "   over" if moment.over else ""
    numbers = f"step {moment.step:,}   return {moment.total:,.4g}"
    return f"episode {moment.episode + 1}   {numbers}{ended}"


def _home(what: Run | Policy | str | os.PathLike[str]) -> Path:
    """The folder for a video without a name."""
    if isinstance(what, Policy):
        return Path()
    if isinstance(what, Run):
        return what.path or Path()
    return run_folder.home_of(locate.find_checkpoint(Path(what)))


def _unused_name(home: Path) -> Path:
    """An unused name for a video in a folder."""
    names = ("watch.gif", *(f"watch-{i}.gif" for i in range(2, 1000)))
    return next(home / name for name in names if not (home / name).exists())
