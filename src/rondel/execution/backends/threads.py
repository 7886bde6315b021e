"""Every copy in a thread of this process: messages go by reference.

It pays where the work releases Python's lock, as XLA's programs and some environments do.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

import jax

from rondel.execution.backend import Copy, Late, drives, envs_of, name_of, recipe
from rondel.execution.fragment import RESULTS
from rondel.plan import Plan
from rondel.types import Step


class ThreadCopy:
    """A copy in a thread of its own, which answers one call after the other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fragment: Any = None
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._answer, name=f"rondel {name}", daemon=True)
        self._thread.start()

    def call(self, request: str, *args: Any) -> Any:
        promises = [Future[Any]() for _ in range(RESULTS.get(request, 1))]
        self._calls.put((request, args, promises))
        return promises[0] if len(promises) == 1 else tuple(promises)

    def make(self, make: Any, args: tuple[Any, ...]) -> Future[Any]:
        """Make the fragment, in the thread that it will be used in."""
        made: Future[Any] = Future()
        self._calls.put((make, args, [made]))
        return made

    def stop(self) -> None:
        self._calls.put(None)

    def join(self, seconds: float) -> bool:
        """Has it ended by then?"""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _answer(self) -> None:
        while (call := self._calls.get()) is not None:
            self._answer_one(*call)
            del call  # nothing is held on to while waiting
        if self.fragment is not None:
            self.fragment.close()

    def _answer_one(self, request: Any, args: tuple[Any, ...], promises: list[Future[Any]]) -> None:
        try:
            # those who made these were asked before, so this wait ends; their failure is ours
            args = tuple(a.result() if isinstance(a, Future) else a for a in args)
            if callable(request):
                self.fragment, results = request(*args), None
            else:
                results = getattr(self.fragment, request)(*args)
            # an asynchronous program's failure and its time belong to this call
            jax.block_until_ready(results)  # type: ignore[no-untyped-call]
        except BaseException as error:
            if not getattr(error, "__notes__", None):
                error.add_note(f"In {self.name}.")
            for promise in promises:
                promise.set_exception(error)
            return
        each: Any = results if len(promises) > 1 else [results]
        for promise, result in zip(promises, each, strict=True):
            promise.set_result(result)


class CallLink:
    """A link over the calls of a copy."""

    def __init__(self, env: ThreadCopy, deadline: float) -> None:
        self._env, self._deadline = env, deadline
        self._asked: dict[int, Future[Step]] = {}

    def reset(self, first_lane: int, again: int) -> None:
        self._asked[first_lane] = self._env.call("reset", first_lane, again)

    def step(self, first_lane: int, action: Any) -> None:
        self._asked[first_lane] = self._env.call("step", first_lane, action)

    def take(self, first_lane: int) -> Step:
        return self._asked.pop(first_lane).result(self._deadline)


class Threads:
    """The backend of threads."""

    def __init__(self, deadline: float = 600.0) -> None:
        self._deadline = deadline
        self._copies: list[ThreadCopy] = []

    def launch(self, task: Any, plan: Plan) -> list[list[Copy]]:
        pieces: list[list[Any]] = []
        made = []
        for piece, (_, copies) in enumerate(plan.pieces):
            pieces.append([ThreadCopy(name_of(plan, piece, i)) for i in range(copies)])
            self._copies += pieces[-1]
            for i, copy in enumerate(pieces[-1]):
                made.append(copy.make(*recipe(task, plan, piece, i)))
        self.get(made)
        if drives(plan):
            for i, policy in enumerate(pieces[1]):
                links = {e: CallLink(pieces[0][e], self._deadline) for e in envs_of(plan, i)}
                policy.fragment.connect(links)
        return pieces

    def get(self, promises: Sequence[Any]) -> list[Any]:
        self._wait(promises, len(promises))
        return [p.result() if isinstance(p, Future) else p for p in promises]

    def wait(self, promises: Sequence[Any]) -> list[int]:
        self._wait(promises, 1)
        return [i for i, p in enumerate(promises) if not isinstance(p, Future) or p.done()]

    def _wait(self, promises: Sequence[Any], least: int) -> None:
        """Until so many are there, or one of them has failed."""
        futures = {p for p in promises if isinstance(p, Future)}
        least = min(least, len(futures))
        end = time.monotonic() + self._deadline
        while True:
            done, late = wait(futures, max(0.0, end - time.monotonic()), FIRST_COMPLETED)
            for future in done:
                future.result()
            if len(done) >= least:
                return
            if time.monotonic() > end:
                raise Late(
                    f"{len(late)} answers did not come within {self._deadline:g} s. Threads that "
                    f"are busy: {', '.join(copy.name for copy in self._copies)}."
                )
            wait(late, max(0.0, end - time.monotonic()), FIRST_COMPLETED)

    def close(self) -> None:
        copies, self._copies = self._copies, []
        for copy in copies:
            copy.stop()
        for copy in copies:
            copy.join(self._deadline)
