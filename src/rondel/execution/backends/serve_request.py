"""How a worker answers a request on every backend: receive, run, reply, each timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rondel.execution.requests import PRODUCE, Request, stage_of
from rondel.execution.telemetry.timing import ROOM, TRANSPORT, ready


def serve_request(
    worker: Any,
    request: Request,
    args: Sequence[Any],
    receive: Callable[[Sequence[Any]], tuple[Sequence[Any], int]] | None = None,
    reply: Callable[[Any], tuple[Any, int]] | None = None,
) -> Any:
    """Run one request on a worker and book its time.

    `receive` brings arguments into this process and `reply` makes the result ready to leave it;
    each also gives the bytes that it moved. Without them arguments and results pass by reference.
    """
    meter, stage = worker.meter, stage_of(worker, request)
    waits = ROOM if request is PRODUCE and worker.plan.free else request.waits
    meter.ran(stage, request.name, waits)
    if receive:
        args, moved = receive(args)
        meter.mark(stage, TRANSPORT, moved)
    result = ready(getattr(worker, request.name)(*args))
    meter.ran(stage, request.name, worker.kind)
    if reply:
        result, moved = reply(result)
        meter.mark(stage, TRANSPORT, moved)
    return result


def separate_results(request: Request, result: Any) -> Sequence[Any]:
    """The results of a request, one by one."""
    return result if request.results > 1 else [result]
