"""Random faults of all kinds, and a watchdog for runs that hang."""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

import psutil
from census import Census, copies_of, servers_of

LIMIT = {"processes": 120.0, "ray": 300.0}  # seconds without a report that are a hang
_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Chaos:
    """Strikes a random process of a run about once in `every` seconds.

    `odds` are those of each kind of fault: kill, stop, or node, the loss of one of the `nodes`.
    What goes wrong here itself is in `errors`, and it goes on.
    """

    def __init__(
        self,
        run: Any,
        census: Census,
        odds: dict[str, int],
        seconds: float,
        every: float = 1.0,
        nodes: Nodes | None = None,
    ) -> None:
        self._run, self._census, self._odds, self._seconds = run, census, odds, seconds
        self._every, self._nodes = every, nodes
        self._random = random.Random(0)
        self._over = threading.Event()
        self.strikes: Counter[str] = Counter()
        self.last = time.monotonic()  # when one struck
        self.errors: list[str] = []
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def __enter__(self) -> Chaos:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._thread.join()

    def _go_on(self) -> None:
        end = time.monotonic() + self._seconds
        while time.monotonic() < end:
            if self._over.wait(self._every * self._random.uniform(0.5, 1.5)):
                return
            try:
                kind = self._strike()
            except Exception:
                self.errors.append(traceback.format_exc())
                continue
            if kind:
                self.strikes[kind] += 1
                self.last = time.monotonic()

    def _strike(self) -> str:
        """Do a fault -> its kind; "" if there was no process to strike."""
        kind = self._random.choices(list(self._odds), list(self._odds.values()))[0]
        if kind == "node":
            assert self._nodes is not None
            if self._nodes.lose():
                return kind
            kind = "kill"
        self._census.look()  # before it is too late for some
        pids = [*copies_of(self._run), *servers_of(self._run)]
        if not pids:
            return ""
        # among all, whether they live or not: else a server is struck whenever copies are down
        pid = self._random.choice(pids)
        if not self._census.is_marked(pid) or _is_stopped(pid, kind):
            return ""  # it is gone, and its number may be somebody else's by now
        try:
            os.kill(pid, _SIGNALS[kind])
        except ProcessLookupError:
            return ""
        return kind


def _is_stopped(pid: int, kind: str) -> bool:
    """Is the process stopped already?"""
    try:
        return kind == "stop" and psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return True


class Nodes:
    """A cluster of Ray on this machine, of which a node can be lost."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        self._nodes: list[Any] = []
        self._lock = threading.Lock()
        self.late = 0  # times that a node did not come
        try:
            while len(self._nodes) < 2:
                self.add()
                if self.late > 3:
                    raise SystemExit("The machine is too busy for a cluster of Ray.")
            self._cluster.wait_for_nodes()
        except BaseException:
            self.close()
            raise
        self.address = self._cluster.address

    def lose(self) -> bool:
        """End the oldest node, if there is another."""
        if not self._lock.acquire(blocking=False):
            return False  # one is coming
        try:
            if len(self._nodes) < 2:
                return False
            self._cluster.remove_node(self._nodes.pop(0), allow_graceful=False)
            return True
        finally:
            self._lock.release()

    def add(self) -> bool:
        """Is there a new one? There is one more than the run needs.

        Ray lets only the main thread do this. One that does not come is tried again next time.
        """
        with self._lock:
            if len(self._nodes) == 2:
                return False
            try:
                self._nodes.append(self._cluster.add_node(num_cpus=2))
            except TimeoutError:
                self.late += 1
                for half in self._cluster.worker_nodes - set(self._nodes):
                    self._cluster.remove_node(half, allow_graceful=False)
            return True

    def close(self) -> None:
        self._cluster.shutdown()


class Watchdog:
    """Ends this process, with the stacks of all threads, if nothing is heard for too long."""

    def __init__(self, limit: float, census: Census) -> None:
        self.limit, self.longest = limit, 0.0
        self.about: Callable[[], str] = str  # what else to say of a hang
        self.recent = 0.0  # the longest wait since somebody has put this back
        self._census, self._last = census, time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watchdog:
        self._last = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._thread.join()
        faulthandler.cancel_dump_traceback_later()

    def heard(self) -> None:
        """Note that a round is over."""
        now = time.monotonic()
        self.recent = max(self.recent, now - self._last)
        self.longest, self._last = max(self.longest, self.recent), now

    def rested(self) -> None:
        """Note that it did something else, which is not a hang."""
        self._last = time.monotonic()

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            # in case that not even this thread comes to run
            faulthandler.dump_traceback_later(self.limit, exit=True)
            if time.monotonic() - self._last > self.limit:
                said = f"HANG: no round for {self.limit:g} s. {self.about()}"
                print(said, file=sys.stderr)
                for process in self._census.look():
                    print(process, file=sys.stderr)
                faulthandler.dump_traceback(all_threads=True)
                self._census.end()
                os._exit(3)
