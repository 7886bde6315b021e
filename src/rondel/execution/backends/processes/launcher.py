"""Starts the processes of copies, and connects policies with their environments."""

from __future__ import annotations

import mmap
import os
import pickle
import time
from contextlib import ExitStack, closing
from typing import Any

from rondel.execution.backends.processes.fork_server import ForkServer, SpawnFailed
from rondel.execution.backends.processes.proxy import ProcessProxy
from rondel.execution.backends.processes.worker import Start
from rondel.execution.backends.wire.socket_channel import Channel, pair
from rondel.execution.hostenv import crash_record
from rondel.execution.hostenv.host_envs import HostEnvs
from rondel.plan.plan import Plan, env_copies_of, has_separate_envs

_LIGHT = (
    "rondel.execution.backends.processes.worker",
    "rondel.execution.hostenv.host_envs",
    "rondel.envs.gymnasium.lanes",
)
_HEAVY = (
    "optax",
    "rondel.execution.workers.jax_envs",
    "rondel.execution.workers.stage_worker",
    *_LIGHT,
)
_ATTEMPTS = 20  # to start a process while fork servers are killed


class Launcher:
    """Starts processes, each with the descriptors of all `arenas`.

    If `persistent`, it tries again when the fork server is killed meanwhile.
    """

    def __init__(self, plan: Plan, arenas: list[int], persistent: bool) -> None:
        self._plan, self._arenas, self._persistent = plan, arenas, persistent
        self.fork_servers: dict[tuple[str, ...], ForkServer] = {}
        self._old: list[ForkServer] = []  # killed, but their children live on
        self._started: set[ProcessProxy] = set()

    def prepare(self, make: Any) -> ForkServer:
        """The fork server for workers of this class; it imports while the driver goes on."""
        preload = _LIGHT if make is HostEnvs else _HEAVY
        if preload in self.fork_servers and not self.fork_servers[preload].is_alive():
            self._old.append(self.fork_servers.pop(preload))
        if preload not in self.fork_servers:
            self.fork_servers[preload] = ForkServer(preload)
        return self.fork_servers[preload]

    def start(self, unit: list[ProcessProxy]) -> None:
        """Start a process for each copy of a unit, and connect policies with environments."""
        policies = [c for c in unit if "policy" in self._plan.pieces[c.piece].stages]
        with ExitStack() as passed_on:  # processes have their own duplicates
            lines: dict[tuple[int, int], tuple[Channel, Channel]] = {}  # by policy and env copy
            for policy in policies if has_separate_envs(self._plan) else ():
                for env in env_copies_of(self._plan, policy.copy):
                    lines[policy.copy, env] = pair()
                    for end in lines[policy.copy, env]:
                        passed_on.callback(end.close)
            numbers = {c.copy: (c.number, c.name) for c in unit if c.piece == 0}
            for copy in unit:
                links = [at for at in lines if copy in policies and at[0] == copy.copy]
                driven = [at for at in lines if copy not in policies and at[1] == copy.copy]
                start = copy.start._replace(
                    links=tuple((e, *numbers[e]) for _, e in links), driven=len(driven)
                )
                ends = [lines[at][0] for at in links] + [lines[at][1] for at in driven]
                self._spawn(copy, start, [end.fileno() for end in ends])
        self._let_go()

    def _let_go(self) -> None:
        """Close the killed servers none of whose children is a copy any more."""
        needed = {copy.fork_server for copy in self._started}
        for fork_server in [old for old in self._old if old not in needed]:
            self._old.remove(fork_server)
            fork_server.close(0.0)

    def _spawn(self, copy: ProcessProxy, start: Start, lines: list[int]) -> None:
        """Start the process of one copy, by another server if the first was killed."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._spawn_once(copy, start, lines)
                return
            except SpawnFailed:
                if attempt == _ATTEMPTS or not self._persistent:
                    raise
                copy.hang_up()  # a half-started process finds nobody and ends

    def _spawn_once(self, copy: ProcessProxy, start: Start, lines: list[int]) -> None:
        page = crash_record.new_page()
        copy.page = mmap.mmap(page, crash_record.SIZE)
        copy.channel, theirs = pair()
        copy.fork_server = self.prepare(copy.make)
        self._started.add(copy)
        copy.drain()
        copy.done_with = []
        start = start._replace(live=tuple(copy.live.items()))
        with closing(theirs), ExitStack() as passed_on:
            passed_on.callback(os.close, page)
            fds = [theirs.fileno(), *self._arenas, page, *lines]
            target = "rondel.execution.backends.processes.worker:main"
            copy.pid = copy.fork_server.spawn(target, fds, pickle.dumps(start)).pid

    def close(self, seconds: float) -> None:
        """Give all processes `seconds` to end by themselves, then kill them."""
        fork_servers = [*self.fork_servers.values(), *self._old]
        self.fork_servers, self._old = {}, []
        self._started = set()
        end = time.monotonic() + seconds
        for fork_server in fork_servers:
            fork_server.close(max(0.0, end - time.monotonic()))
