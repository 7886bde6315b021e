"""The table of requests, the typed methods that send them, and the workers that answer."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from rondel.execution import requests
from rondel.execution.backends.protocol import WorkerApi
from rondel.execution.hostenv.host_envs import EnvApi, HostEnvs
from rondel.execution.requests import Request, request_named
from rondel.execution.workers.jax_envs import JaxEnvs
from rondel.execution.workers.stage_worker import StageWorker

TABLE = {one.name: one for one in vars(requests).values() if isinstance(one, Request)}
ENV = ("reset", "step", "state", "set_state")
METHODS = [name for name in TABLE if hasattr(WorkerApi, name)]


class Sender(WorkerApi):
    """Says which request it was given."""

    def send(self, request: Request, *args: Any) -> Any:
        return request, args


def parameters(method: Any) -> list[tuple[str, Any]]:
    each = list(inspect.signature(method).parameters.values())[1:]  # without self
    return [(one.name, one.kind) for one in each if one.kind is not one.VAR_POSITIONAL]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_sends_the_request_of_its_name(name: str) -> None:
    method = getattr(Sender(), name)
    values = [object() for _ in parameters(getattr(WorkerApi, name))]
    assert method(*values) == (TABLE[name], tuple(values))


@pytest.mark.parametrize("name", METHODS)
def test_who_answers_takes_what_is_sent(name: str) -> None:
    workers = [JaxEnvs] if name in ENV else [StageWorker]
    workers += [HostEnvs] if name in ("reset", "step") else []
    for worker in workers:
        api = EnvApi if name in ENV else WorkerApi
        assert parameters(getattr(worker, name)) == parameters(getattr(api, name))


def test_all_but_those_that_start_a_copy_have_a_method() -> None:
    assert {name for name in TABLE if name not in METHODS} == {
        name for name, request in TABLE.items() if request.starts
    }


def test_a_request_comes_over_a_wire_as_itself() -> None:
    assert all(request_named(name) is request for name, request in TABLE.items())
    assert request_named("stranger").results == 1
