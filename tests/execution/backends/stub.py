"""Fragments without JAX, for tests of what happens to processes: they start in milliseconds.

What they are asked to do is the name of a function of this module, and perhaps a number.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from execution.backends.remains import runs
from rondel.execution.requests import Request
from rondel.execution.telemetry.timing import Metered
from rondel.types import Step

DO, BECOME, DRIVE = map(Request, ("do", "become", "drive"))


class Stub(Metered):
    """Any piece: an env steps by doing something, a policy drives its first env."""

    def __init__(self, piece: str, at_start: dict[str, str]) -> None:
        self.links: Mapping[int, Any] = {}
        self._does = "nothing"
        do(at_start.get(piece, "nothing"))

    def connect(self, links: Mapping[int, Any]) -> None:
        self.links = links

    def do(self, what: str) -> Any:
        return do(what)

    def become(self, what: str) -> None:
        """From now on, do this in every step."""
        self._does = what

    def drive(self, request: str = "step") -> Any:
        """One step of the env copy, or a reset."""
        getattr(self.links[0], request)(0, np.zeros(1, np.float32))
        return self.links[0].take(0)

    def reset(self, first_lane: int, again: Any) -> Step:
        return self.step(first_lane, again)

    def step(self, first_lane: int, action: Any) -> Step:
        do(self._does)
        no = np.zeros(1, np.bool_)
        return Step(action, action, no, no, no, action, np.zeros(1, np.int32))

    def close(self) -> None:
        pass


def do(what: str) -> Any:
    name, *numbers = what.split()
    return globals()[name](*map(int, numbers))


def nothing() -> None:
    pass


def pid() -> int:
    return os.getpid()


def has_jax() -> bool:
    return "jax" in sys.modules


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_other(pid: int) -> None:
    """Return when it is gone."""
    os.kill(pid, signal.SIGKILL)
    while runs(pid):
        time.sleep(0.01)


def crash() -> None:
    ctypes.string_at(0)


def leave() -> None:
    os._exit(3)


def sleep(seconds: int = 1000) -> None:
    time.sleep(seconds)


class Broken(Exception):
    """One that can be written by pickle, and not be read."""

    def __init__(self, part: str, lock: Any) -> None:
        super().__init__(f"{part} broke")
        self.part, self.lock = part, lock

    def advice(self) -> str:
        return f"replace {self.part}"


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def fail() -> NoReturn:
    raise ValueError("the user's own words")


def fail_by_cause() -> NoReturn:
    try:
        fail()
    except ValueError as error:
        raise LookupError("nothing there") from error


def fail_with_a_note() -> NoReturn:
    error = ValueError("the user's own words")
    error.add_note("and a note")
    raise error


def fail_broken() -> NoReturn:
    raise Broken("spring", threading.Lock())


def fail_mute() -> NoReturn:
    raise Mute


def fail_local() -> NoReturn:
    class Local(RuntimeError):
        pass

    raise Local("from in here")


def fail_file() -> NoReturn:
    open("/nowhere").close()
    raise AssertionError


def leave_politely() -> NoReturn:
    raise SystemExit(3)


def interrupt() -> NoReturn:
    raise KeyboardInterrupt
