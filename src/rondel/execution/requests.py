"""Every request that a copy answers, with the properties that backends and recovery need.

`backends.protocol.WorkerApi` has a typed method for each; over a wire a request goes by its name.
It imports no jax.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rondel.execution.telemetry.timing import ACTIONS, DATA, WEIGHTS


@dataclass(frozen=True, eq=False)
class Request:
    """One request: a method of the worker, and its properties."""

    name: str  # of the method
    stage: str = "keeping"  # its time is booked to; "keeping": snapshots and the like
    results: int = 1  # how many promises: each can go to another copy
    waits: str = DATA  # the kind that the wait for this request is booked to
    reads: bool = False  # it changes nothing, so a restarted copy need not repeat it
    shared: bool = False  # a read whose result goes to other copies, which may need it again
    starts: bool = False  # it only sets up the worker, and every incarnation gets its own

    def __str__(self) -> str:
        return self.name


# to start a copy: these are answered by its process, thread or actor
MAKE = Request("make", starts=True)
LISTEN = Request("listen", starts=True)
CONNECT = Request("connect", starts=True)
TAKE_OVER = Request("take_over", starts=True)
# env
RESET = Request("reset", "env", waits=ACTIONS)
STEP = Request("step", "env", waits=ACTIONS)
STATE = Request("state")
SET_STATE = Request("set_state")
# env and policy
BEGIN = Request("begin", "env")
BEGIN_AGAIN = Request("begin_again")
PRODUCE = Request("produce", "actor", results=3, waits=WEIGHTS)  # "policy" if envs are elsewhere
# memory
ADD = Request("add", "memory")
DRAW = Request("draw", "memory")
RANK = Request("rank", "memory")
# label and gradient
SET_LABEL_VARIABLES = Request("set_label_variables", "label")
LABEL = Request("label", "label")
GRADIENT = Request("gradient", "gradient", results=2)
# update
ABSORB = Request("absorb", "update")
UPDATE = Request("update", "update")
LEARNING = Request("learning", "update", reads=True, shared=True)
ACTING = Request("acting", "update", reads=True, shared=True)
# several stages in one program
LEARN = Request("learn", "learner")
COMPUTE_ROUNDS = Request("compute_rounds", "all")
# the worker itself
SNAPSHOT = Request("snapshot", reads=True)
RESTORE = Request("restore")
KEEP = Request("keep", results=2, reads=True)
TIMING_REPORT = Request("timing_report", reads=True)

_BY_NAME = {one.name: one for one in list(globals().values()) if isinstance(one, Request)}


def request_named(name: str) -> Request:
    """The request of this name; an unknown name gives one without properties."""
    return _BY_NAME.get(name) or Request(name)


def stage_of(worker: Any, request: Request) -> str:
    """The stage that a request's time is booked to."""
    return "policy" if request is PRODUCE and worker.links else request.stage
