"""Checks of an environment before training; one sentence says what is wrong."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from rondel.envs.errors import EnvError
from rondel.envs.guard.crash_report import attempt
from rondel.envs.guard.sampling import leaves, random_action, violations
from rondel.errors import RondelError
from rondel.spaces import Box, Leaf, MultiBinary, mask_of
from rondel.types import Env, EnvSpec, HostWorld, Step, Tree

STEPS = 16
_FIELDS = {
    "reward": "float32",
    "terminated": "bool",
    "truncated": "bool",
    "first": "bool",
    "episode_return": "float32",
    "episode_length": "int32",
}


def check(env: Env | HostWorld) -> None:
    """Run a few random steps; raise a RondelError if something is wrong.

    >>> check(make("CartPole-v1"))
    """
    if isinstance(env, Env):
        _check_traceable(env)
    else:
        _check_host(env)


def _check_host(world: HostWorld) -> None:
    spec, random = world.spec, np.random.default_rng(0)
    host = world.make(1, 0)
    try:
        if look := getattr(host, "check", None):
            look()
        with attempt(spec.id, "reset()"):
            step = host.reset(np.arange(1))
        _check_step(spec, step, 1, f"reset() of {spec.id}")
        for _ in range(STEPS):
            stacks = _stacks(spec, step)
            action = random_action(spec.action, 1, random, mask_of(step.obs))
            with attempt(spec.id, f"step({action[0]!r})"):
                step = host.step(action)
            _check_step(spec, step, 1, f"step() of {spec.id}", stacks)
    finally:
        host.close()


def _check_traceable(env: Env) -> None:
    import jax

    b, spec, random = 2, env.spec, np.random.default_rng(0)
    keys = jax.random.split(jax.random.key(0, impl="threefry2x32"), b)
    init, advance = (jax.jit(env.init), jax.jit(env.step)) if env.pure else (env.init, env.step)
    state, step = _called(spec, "init()", init, keys)
    try:
        _check_step(spec, step, b, f"init() of {spec.id}")
        for _ in range(STEPS):
            stacks = _stacks(spec, step)
            action = random_action(spec.action, b, random, mask_of(step.obs))
            after, step = _called(spec, f"step({action!r})", advance, state, action)
            _check_step(spec, step, b, f"step() of {spec.id}", stacks)
            if env.pure:
                _check_state(spec, state, after)
            state = after
    finally:
        if env.close is not None:
            env.close(state)


def _called(spec: EnvSpec, doing: str, function: Any, *args: Any) -> Any:
    """What a function of a traceable environment returns: its state and a Step."""
    call = f"{doing.partition('(')[0]}() of {spec.id}"
    with attempt(spec.id, doing):
        try:
            result = function(*args)
        except Exception as error:
            raise EnvError(f"{call} raised {type(error).__name__}: {error}") from error
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RondelError(f"{call} must return (state, Step), got {result}.")
    return result


def _check_state(spec: EnvSpec, state: Tree, after: Tree) -> None:
    before, now = _described(state), _described(after)
    if before != now:
        raise RondelError(
            f"step() of {spec.id} must keep the structure, shapes and dtypes of its state: got "
            f"{dict(before - now)}, returned {dict(now - before)}."
        )


def _described(tree: Tree) -> set[tuple[str, str]]:
    """(path, dtype and shape) of every array in a tree."""
    from jax.tree_util import keystr, tree_leaves_with_path

    return {(keystr(path), f"{x.dtype}{list(x.shape)}") for path, x in tree_leaves_with_path(tree)}


def _check_shapes(spec: EnvSpec, step: Step, b: int, call: str) -> None:
    """Check that every array of a step has the shape and dtype of the spec."""
    if not isinstance(step, Step):
        raise RondelError(f"{call} must return a Step, got a {type(step).__name__}.")
    expected: list[tuple[str, tuple[int, ...], str, Any]] = [
        (f"Step.{name}", (), dtype, getattr(step, name)) for name, dtype in _FIELDS.items()
    ]
    try:
        for path, space, array in leaves(spec.observation, step.obs):
            expected.append((f"Step.obs{path}", space.shape, space.dtype, array))
    except (KeyError, IndexError, TypeError) as error:
        raise RondelError(
            f"The observation from {call} lacks a part of its space: {error}."
        ) from error
    for field, shape, dtype, array in expected:
        found = getattr(array, "shape", None), str(getattr(array, "dtype", type(array).__name__))
        if found != ((b, *shape), dtype):
            raise RondelError(
                f"{field} from {call} must be {dtype} of shape {(b, *shape)} with {b} lanes, got "
                f"{found[1]} of shape {found[0]}."
            )


def _check_step(spec: EnvSpec, step: Step, b: int, call: str, before: Stacks | None = None) -> None:
    """Check that numbers are finite and in their space, and that stacked frames follow `before`."""
    _check_shapes(spec, step, b, call)
    if not np.isfinite(step.reward).all():
        raise RondelError(f"Rewards from {call} must be finite, got {np.asarray(step.reward)}.")
    for path, space, leaf in leaves(spec.observation, step.obs):
        array = np.asarray(leaf)
        if not np.isfinite(array).all():
            raise RondelError(f"The observation{path} from {call} must be finite, got {array}.")
        low, high = _bounds(space)
        if stray := violations(array, low, high):
            raise RondelError(f"The observation{path} from {call} is outside its space: {stray}.")
    for path, stack in _stacks(spec, step).items():
        _check_frames(stack, None if before is None else before[path], call, path)


Stacks: TypeAlias = "dict[str, np.ndarray]"  # path -> [b, F, ...], where F > 1 frames are stacked


def _stacks(spec: EnvSpec, step: Step) -> Stacks:
    return {
        # a copy: a host environment may write its next step into the same arrays
        path: np.array(x).reshape(len(x), space.frames, space.shape[0] // space.frames, -1)
        for path, space, x in leaves(spec.observation, step.obs)
        if isinstance(space, Box) and space.frames > 1
    }


def _check_frames(stack: np.ndarray, before: np.ndarray | None, call: str, path: str) -> None:
    """Check that frames [b, F, ...] are those before, shifted by one, or one frame repeated."""
    frames = stack.shape[1]
    rule = f"one frame {frames} times"
    if before is not None:
        rule += ", or those of the observation before, shifted by one towards the first"
    for lane, stacked in enumerate(stack):
        if (stacked == stacked[-1:]).all():
            continue
        if before is None or (stacked[:-1] != before[lane, 1:]).any():
            raise RondelError(
                f"The frames of the observation{path} from {call} must be {rule}, since its space "
                f"has frames={frames}. Without `frames`, memory stores observations whole."
            )


def _bounds(space: Leaf) -> tuple[Any, Any]:
    if isinstance(space, Box):
        return space.low, space.high
    return 0, 1 if isinstance(space, MultiBinary) else np.array(space.n) - 1
