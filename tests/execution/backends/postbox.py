"""A backend as another package would bring it: each copy in a thread, every message pickled.

Copied into a folder of its own and installed there by `test_registry`.
"""

from __future__ import annotations

import pickle
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from rondel.execution.backends.protocol import Copy, Restarts, worker_factory
from rondel.execution.backends.registry import BackendInfo
from rondel.execution.stages.task import on_host, to_device
from rondel.plan.plan import copy_name, has_separate_envs


def _by_post(tree):
    return to_device(pickle.loads(pickle.dumps(on_host(tree))))


class Postbox(Copy):
    """One copy, and its messages."""

    def __init__(self, name, make, args):
        self.name = name
        self._thread = ThreadPoolExecutor(1, name)
        self.worker = self._thread.submit(make, *args).result()

    def latest_timings(self):
        return None

    def send(self, request, *args):
        answer = self._thread.submit(self._answer, request, args)
        if request.results == 1:
            return answer
        return tuple(self._part(answer, i) for i in range(request.results))

    def _answer(self, request, args):
        args = [a.result() if isinstance(a, Future) else a for a in args]
        return _by_post(getattr(self.worker, request.name)(*map(_by_post, args)))

    def _part(self, answer, i):
        return self._thread.submit(lambda: answer.result()[i])

    def close(self):
        self._thread.submit(self.worker.close).result()
        self._thread.shutdown()


class Postboxes:
    def __init__(self):
        self.copies = []

    def launch(self, task, lowering):
        plan = lowering.plan
        assert not has_separate_envs(plan)
        pieces = []
        for piece, (_, copies, _) in enumerate(plan.pieces):
            pieces.append([])
            for i in range(copies):
                name = copy_name(plan, piece, i)
                pieces[-1].append(Postbox(name, *worker_factory(task, plan, piece, i)))
            self.copies += pieces[-1]
        return pieces

    def get(self, promises):
        return [p.result() if isinstance(p, Future) else p for p in promises]

    def wait(self, promises):
        wait([p for p in promises if isinstance(p, Future)], return_when=FIRST_COMPLETED)
        return [i for i, p in enumerate(promises) if not isinstance(p, Future) or p.done()]

    def after_round(self, now=False):
        pass

    def restarts(self):
        return Restarts()

    def close(self):
        for copy in self.copies:
            copy.close()


INFO = BackendInfo(
    "postbox",
    "a thread for each copy, which sees its messages by post",
    lambda options: Postboxes(),
    "a postbox",
)
