"""Backends by name, and what each can do: the built-in ones, and those of other packages.

A package brings a backend by an entry point in the group `rondel.backends` that names its
`BackendInfo`. It is loaded only when a run asks for it, or to be listed. Imports no jax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rondel import entry_points
from rondel.errors import RondelError
from rondel.formatting import closest_words, join_words

if TYPE_CHECKING:
    from rondel.execution.backends.protocol import Backend

GROUP = "rondel.backends"
IN_DRIVER = "inline"  # the default, where nothing is cut
FOR_CUTS = "processes"  # the default, where the plan is cut


class BackendOptions(NamedTuple):
    """What a run asks of its backend."""

    deadline: float = 600.0  # seconds for an answer
    restarts: int = 0  # of a copy, one after the other, without progress
    resources: Sequence[Mapping[str, float]] | None = None  # of a copy of each piece
    address: str | None = None  # of what runs already


@dataclass(frozen=True)
class BackendInfo:
    """What a backend can do. Everybody asks this record, nobody compares names."""

    name: str
    summary: str  # one line, for lists
    make: Callable[[BackendOptions], Backend]  # imports what it needs when it is called
    place: str = "a worker"  # what holds one copy, with its article: "a thread"
    in_driver: bool = False  # copies take turns in the driver's thread, or are one program there
    own_process: bool = False  # a copy is in another process than the driver
    remote: bool = False  # a copy may be on another machine
    restarts: bool = False  # a copy that dies or hangs is started again
    elastic: bool = False  # the copies of a range, `actor*4..16`, may come and go
    takes_resources: bool = False  # pieces may ask for CPUs, GPUs and memory
    takes_address: bool = False  # it can join a cluster that runs already
    library: str = ""  # the package that it needs beside Rondel's own
    install: str = ""  # the command that installs it

    @property
    def unit(self) -> str:
        """What holds one copy, without its article; "" if copies take turns."""
        return "" if self.in_driver else self.place.partition(" ")[2]

    @property
    def beside(self) -> bool:
        """Copies run at the same time, all on this machine."""
        return not (self.in_driver or self.remote)

    def create(self, options: BackendOptions) -> Backend:
        """Make the backend of a run."""
        try:
            return self.make(options)
        except ImportError as error:
            how = f": {self.install}" if self.install else ""
            raise RondelError(
                f"--on {self.name} needs a package that can't be imported here ({error}). "
                f"Install it{how}."
            ) from error


def find(name: str | None) -> BackendInfo:
    """The backend of that name, or the default one."""
    name = name or IN_DRIVER
    found = _BUILT_IN.get(name) or entry_points.load(GROUP, name, BackendInfo)
    if found is None:
        near = closest_words(name, names())
        meant = f" Did you mean {near}?" if near else ""
        raise RondelError(f"on must be {join_words(names(), 'or')}, got {name!r}.{meant}")
    return found


def names() -> list[str]:
    """The names of all installed backends, built-in ones first; none is loaded."""
    return list(dict.fromkeys([*_BUILT_IN, *entry_points.names(GROUP)]))


def listing() -> list[str]:
    """A line for each backend; a broken one says why."""
    return entry_points.lines(names(), lambda name: find(name).summary)


def names_with(ability: str) -> str:
    """The built-in backends that can do something, as words: "ray"."""
    return join_words([n for n, info in _BUILT_IN.items() if getattr(info, ability)], "or")


def libraries() -> set[str]:
    """Packages that the built-in backends run on."""
    return {info.library for info in _BUILT_IN.values()} - {""}


def _inline(options: BackendOptions) -> Backend:
    from rondel.execution.backends.inline import Inline

    return Inline(deadline=options.deadline)


def _threads(options: BackendOptions) -> Backend:
    from rondel.execution.backends.threads import Threads

    return Threads(options.deadline)


def _processes(options: BackendOptions) -> Backend:
    from rondel.execution.backends.processes.backend import Processes

    return Processes(options.deadline, options.restarts)


def _ray(options: BackendOptions) -> Backend:
    from rondel.execution.backends.ray.backend import Ray

    return Ray(options.address, options.resources, options.deadline, options.restarts)


_BUILT_IN = {
    info.name: info
    for info in (
        BackendInfo(
            IN_DRIVER,
            "all copies take turns in the driver's thread; the default for a plan without cuts",
            _inline,
            in_driver=True,
        ),
        BackendInfo(
            "threads", "a thread for each copy, in the driver's process", _threads, "a thread"
        ),
        BackendInfo(
            FOR_CUTS,
            "a process for each copy, on this machine; the default for a plan with cuts",
            _processes,
            "a process",
            own_process=True,
            restarts=True,
        ),
        BackendInfo(
            "ray",
            "a Ray actor for each copy, on this machine or on the nodes of a cluster",
            _ray,
            "an actor",
            own_process=True,
            remote=True,
            restarts=True,
            elastic=True,
            takes_resources=True,
            takes_address=True,
            library="ray",
            install='pip install "rondel[ray]"',
        ),
    )
}
