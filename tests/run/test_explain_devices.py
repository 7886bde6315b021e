"""What `explain` says of copies that are one program on several devices of this process."""

from __future__ import annotations

import jax
import pytest

from run.test_explain import dqn, ways


def test_copies_on_devices_of_this_process_are_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "local_device_count", lambda: 2)
    facts = dqn("all*2", on="inline")
    assert facts.pieces[0].runs == ("all copies: one program on 2 devices, many rounds per call",)
    assert ways(facts) == ["policy summary update x2", "gradient contribution update x6"]
    assert "on        inline: in this process, on 2 devices\n" in str(facts)
    assert facts.numbers.startswith(
        "deterministic and the same on every backend if XLA has 2 threads (NPROC=2), but not "
        "those of `all`: memory draws from 2 shards"
    )
    elsewhere = dqn("all*2", on="processes")
    assert (facts.devices, elsewhere.devices) == (2, 1)
    assert elsewhere.numbers.startswith("deterministic and the same on every backend, but")


def test_gradients_on_devices_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "local_device_count", lambda: 2)
    facts = dqn("actor+memory | gradient*2 | update", on="inline")
    *_, memory, gradient, update = [run for piece in facts.pieces for run in piece.runs]
    rest = (
        ": part of one program for all 3 draws of a round, on 2 devices, each with all of memory "
        "and its rows of a batch"
    )
    assert [memory, gradient, update] == [f"memory{rest}", f"gradient{rest}", f"update{rest}"]
    assert ways(facts) == ["gradient contribution update x6", "gradient feedback memory x6"]
    assert "inline: in this process, on 2 devices\n" in str(facts)
    assert "if XLA has 2 threads (NPROC=2), but" in facts.numbers
