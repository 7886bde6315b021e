"""Host environments from Gymnasium: by a registered id, an instance, or a factory.

Those of dm_env and old Gym have no ids; `dm_env` and `old_gym` adapt them.

One environment is made and reset to find its spec: an info with "action_mask" makes the
observation {"observation": ..., "action_mask": int8 flags}.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import gymnasium

from rondel.envs.errors import EnvError, NotAvailable
from rondel.envs.gymnasium import dm_env, old_gym, raw_check
from rondel.envs.gymnasium.lanes import Lanes
from rondel.envs.gymnasium.spaces import action_spec, observation_spec, with_mask
from rondel.envs.gymnasium.stacks import stacked_by
from rondel.envs.world import split
from rondel.errors import RondelError
from rondel.spaces import MASK, with_frames
from rondel.types import EnvSpec, HostWorld

Factory: TypeAlias = Callable[[], Any]
_PICTURE = "rgb_array"  # the render mode for videos


def from_id(name: str) -> HostWorld:
    """Make the environment of a registered id, or of "my_module:Mine-v0" once that is imported.

    Its arguments may follow: "HalfCheetah-v5?ctrl_cost_weight=0.2".

    >>> lanes = from_id("CartPole-v1").make(8)
    >>> step = lanes.reset(range(8))
    """
    env = _make(name)
    mode = _PICTURE if _PICTURE in env.metadata.get("render_modes", ()) else None
    world = _world(env, f"gymnasium:{name}", partial(_make, name), partial(_make, name, mode))
    env.close()
    return world


def from_instance(env: Any) -> HostWorld:
    """Wrap an existing environment: one lane borrows it, the others get copies.

    It is never closed here.
    """
    env = _adapted(env)
    copies = _Copies(env)
    return _world(env, _name(env), copies, copies.shown)


def from_factory(factory: Callable[..., Any], made: Any, env_id: str = "") -> HostWorld:
    """Wrap a function that makes environments; `made` is its first one."""
    if not is_understood(made):
        raise RondelError(
            f"{env_id or repr(factory)} must return a gymnasium.Env, a dm_env.Environment, an Env "
            f"or a HostWorld, got a {type(made).__name__}."
        )
    env = _adapted(made, factory)
    build, build_shown = partial(_build, factory), partial(_build_shown, factory)
    world = _world(env, env_id or _name(env), build, build_shown)
    env.close()
    return world


def call(factory: Callable[..., Any]) -> Any:
    """Call a factory, with a seed if it requires one."""
    seed = _parameter(factory, "seed")
    needed = seed is not None and seed.default is seed.empty
    return factory(seed=0) if needed else factory()


def is_understood(env: Any) -> bool:
    """Whether it is a Gymnasium environment, or one that can be adapted."""
    return isinstance(env, gymnasium.Env) or dm_env.is_dm(env) or old_gym.is_old(env)


def _adapted(env: Any, factory: Callable[..., Any] | None = None) -> Any:
    """Adapt an environment to gymnasium.Env; `factory` is what made it."""
    if isinstance(env, gymnasium.Env):
        return env
    if dm_env.is_dm(env):
        takes_seed = factory is not None and _parameter(factory, "seed") is not None
        return dm_env.DmEnv(env, factory if takes_seed else None)
    return old_gym.OldEnv(env)


def _build(factory: Callable[..., Any]) -> Any:
    return _adapted(call(factory), factory)


def _build_shown(factory: Callable[..., Any]) -> Any:
    """Make one with pictures, if the factory takes a render_mode."""
    if _parameter(factory, "render_mode") is None:
        return _build(factory)
    return _build(partial(factory, render_mode=_PICTURE))


def _parameter(factory: Callable[..., Any], name: str) -> inspect.Parameter | None:
    """The factory's parameter of that name, if it can be passed by name."""
    try:
        found = inspect.signature(factory).parameters.get(name)
    except (TypeError, ValueError):  # C code may have no signature
        return None
    return None if found is None or found.kind is found.POSITIONAL_ONLY else found


def is_registered(name: str) -> bool:
    """Whether Gymnasium has the id, after importing the module before its colon, if any."""
    _import_module_of(name)
    try:
        gymnasium.spec(split(name)[0].rpartition(":")[2])
    except gymnasium.error.DeprecatedEnv as error:
        raise NotAvailable(f"gymnasium:{name} can't be made: {str(error).rstrip('.')}.") from error
    except gymnasium.error.Error:
        return False
    return True


def _import_module_of(name: str) -> None:
    """Import what registers an id: the module before its colon, or Atari's."""
    module = "ale_py" if name.startswith("ALE/") else split(name)[0].rpartition(":")[0]
    if module:
        if not all(part.isidentifier() for part in module.split(".")):
            raise RondelError(
                f"The part before the colon in {name!r} must name a module, got {module!r}."
            )
        try:
            importlib.import_module(module)
        except ImportError as error:
            how = f" ({_install('atari')})" if module == "ale_py" else f": {error}"
            raise NotAvailable(f"gymnasium:{name} needs the module {module}{how}.") from error


def registered() -> list[str]:
    """All ids that are registered with Gymnasium by now."""
    return sorted(gymnasium.registry)


def _world(env: Any, name: str, build: Factory, build_shown: Factory) -> HostWorld:
    """The world of environments like `env`; `build_shown` makes those with pictures."""
    observation = with_frames(observation_spec(env.observation_space, name), stacked_by(env))
    action = action_spec(env.action_space, name)
    _, info = raw_check.reset(env, name, seed=0)
    masked = MASK in info and not (isinstance(observation, dict) and MASK in observation)
    if masked:
        observation = with_mask(observation, action, name)
    spec = EnvSpec(name, observation, action)
    shown = partial(_lanes, build_shown, spec, masked, 1)
    return HostWorld(spec, partial(_lanes, build, spec, masked), shown)


def _lanes(build: Factory, spec: EnvSpec, masked: bool, b: int, first_lane: int = 0) -> Lanes:
    return Lanes([build() for _ in range(b)], spec, masked, first_lane)


def _make(name: str, render_mode: str | None = None) -> Any:
    try:
        # Gymnasium's checker costs a call in every step, and `check` has run before
        _import_module_of(name)  # also in other processes
        bare, arguments = split(name)
        if render_mode is not None:
            arguments["render_mode"] = render_mode
        return gymnasium.make(bare, disable_env_checker=True, **arguments)
    except RondelError:
        raise
    except gymnasium.error.DependencyNotInstalled as error:
        raise NotAvailable(f"gymnasium:{name} needs {_missing(str(error))}.") from error
    except Exception as error:
        if isinstance(error, ImportError) and _is_gymnasiums(bare):
            raise NotAvailable(f"gymnasium:{name} can't be made: {error}") from error
        if _is_about_arguments(error):
            raise RondelError(f"gymnasium:{name} can't be made: {error}.") from error
        raise EnvError(
            f"gymnasium:{name} can't be made: {type(error).__name__}: {error}"
        ) from error


def _is_about_arguments(error: Exception) -> bool:
    """Whether the arguments were wrong, not the environment's own code."""
    words = ("unexpected keyword argument", "multiple values for", "required positional argument")
    return isinstance(error, TypeError) and any(word in str(error) for word in words)


def _missing(error: str) -> str:
    """The missing package, and the extra of Rondel that installs it."""
    for package, extra in (("MuJoCo", "mujoco"), ("Box2D", "box2d"), ("ale_py", "atari")):
        if package.lower() in error.lower():
            return f"{package} ({_install(extra)})"
    return f"a package that is not installed: {error.rstrip('.')}"


def _install(extra: str) -> str:
    return f'pip install "rondel[{extra}]"'


def _is_gymnasiums(name: str) -> bool:
    """Whether Gymnasium's own code makes it: then a traceback helps nobody."""
    entry = gymnasium.spec(name).entry_point
    module = entry if isinstance(entry, str) else getattr(entry, "__module__", "")
    return module.startswith("gymnasium.")


def _name(env: Any) -> str:
    """Its id, if that makes it; else "own:Class", which the user passes again to load a run."""
    if _is_plain(env):
        return f"gymnasium:{env.spec.id}"
    return f"own:{type(getattr(env.unwrapped, 'adapted', env.unwrapped)).__name__}"


def _is_plain(env: Any) -> bool:
    """Whether its id alone makes it: no further wrappers, no arguments of its own."""
    spec = env.spec
    if spec is None or spec.id not in gymnasium.registry or spec.additional_wrappers:
        return False
    given, usual = ({**s.kwargs, "render_mode": None} for s in (spec, gymnasium.spec(spec.id)))
    return given == usual and spec.max_episode_steps == gymnasium.spec(spec.id).max_episode_steps


class _Copies:
    """Factory of environments like a given one: that one first, then copies."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self.lent = False

    def __call__(self) -> Any:
        if not self.lent:
            self.lent = True
            return _Lent(self._env, self)
        if self._env.spec is not None:
            # a wrapper that doesn't record its arguments can't be made anew, but maybe copied
            with contextlib.suppress(ValueError, gymnasium.error.Error):
                return gymnasium.make(self._env.spec, disable_env_checker=True)
        try:
            return copy.deepcopy(self._env)
        except Exception as error:
            raise RondelError(
                f"{_name(self._env)} can't be copied for further lanes ({error}). Pass a "
                "function that makes one."
            ) from error

    def shown(self) -> Any:
        """One with pictures, if its spec can make it; else as it is."""
        if self._env.render_mode != _PICTURE and self._env.spec is not None:
            with contextlib.suppress(ValueError, TypeError, gymnasium.error.Error):
                return gymnasium.make(
                    self._env.spec, render_mode=_PICTURE, disable_env_checker=True
                )
        return self()


class _Lent(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A borrowed environment: closing it returns it."""

    def __init__(self, env: Any, owner: _Copies) -> None:
        super().__init__(env)
        self._owner = owner

    def close(self) -> None:
        self._owner.lent = False
