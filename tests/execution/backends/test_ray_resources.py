"""What a plan asks of a cluster, and what it lacks; no cluster is needed for that."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from rondel.errors import RondelError
from rondel.execution.backends.ray.resources import bundles_of, missing, refuse_if_nobody_listens
from rondel.plan.parser import parse


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([{"CPU": 4.0, "GPU": 1.0}], None),
        ([{"CPU": 2.0}, {"CPU": 2.0, "GPU": 1.0}], None),
        ([{"CPU": 2.0, "GPU": 1.0}], "asks for 4 CPU, and the cluster has 2 CPU. Use fewer"),
        (
            [{"CPU": 8.0}],
            "asks for 1 GPU, and the cluster has no GPU at all. Ask for none",
        ),
        (
            [{"CPU": 3.0}, {"CPU": 1.0, "GPU": 1.0}],
            "learner asks for 2 CPU, 1 GPU, and no node has that; the most that one has is 3 CPU, ",
        ),
    ],
)
def test_what_is_missing_is_said(nodes: Any, said: str | None) -> None:
    plan = parse("actor*2 | learner")
    lack = missing(plan, bundles_of(plan, [{}, {"cpu": 2, "gpu": 1}]), nodes)
    assert (lack is None) if said is None else (said in lack)


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "[::1]")]
)
def test_an_address_where_nobody_listens_is_refused(family: int, host: str) -> None:
    with socket.socket(family) as server:
        try:
            server.bind((host.strip("[]"), 0))
        except OSError:
            pytest.skip(f"this machine has no {host}")
        server.listen()
        address = f"{host}:{server.getsockname()[1]}"
        refuse_if_nobody_listens(address)
    with pytest.raises(RondelError, match=r"^There is no Ray at .*: "):
        refuse_if_nobody_listens(address)
