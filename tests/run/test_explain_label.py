"""What `explain` says of the stage `label`, and what is said where it can't be."""

from __future__ import annotations

from typing import Any

import pytest

import rondel
from execution import toy
from rondel.types import EnvSpec
from run.test_explain import DQN, Watch, by_name, ways

HOME = "actor*2 | memory | label*2 | gradient+update"


def at_once(config: None, spec: EnvSpec) -> Any:
    """The toy with labels, which learns in its first round."""
    algorithm = toy.labelled(config, spec)
    return algorithm._replace(memory=algorithm.memory._replace(warmup_rounds=0))


def explained(plan: str, **fields: Any) -> Any:
    return rondel.explain(at_once, "CartPole-v1", plan=plan, lanes=16, **fields)


@pytest.mark.parametrize(
    ("plan", "crosses"),
    [
        (
            HOME,  # what labels need of the learner goes to each of their copies once a round
            [
                "memory batch label x8",
                "update variables label x2",
                "label labelled gradient x8",
                "gradient feedback memory x4",
            ],
        ),
        (
            "actor*2 | memory+label | gradient+update",
            [
                "update variables label x1",
                "label labelled gradient x4",
                "gradient feedback memory x4",
            ],
        ),
        (
            "actor*2 | memory | gradient*2 | update",
            [
                "memory batch gradient x8",
                "update variables label x2",
                "gradient feedback memory x8",
                "update variables gradient x8",
                "gradient contribution update x8",
            ],
        ),
        ("actor*2 | learner", []),
    ],
)
def test_what_crosses_a_cut(plan: str, crosses: list[str]) -> None:
    around = ["policy items memory x2", "policy summary update x2", "update weights policy x2"]
    facts = explained(plan)
    assert ways(facts) == [*around[:2], *crosses, around[2]]
    assert facts.same_as_all == ("gradient*2" not in plan)


def test_what_its_copies_do() -> None:
    _, _, label, _ = explained(HOME).pieces
    assert label.runs == ("label: labels of a batch, 4 times a round",)
    assert [share.rows for share in label.shares] == [(0, 15), (16, 31)]
    assert [share.lanes for share in label.shares] == [(), ()]
    assert label.holds == {}
    assert explained("actor*2 | learner").pieces[1].runs == (
        "memory+label+gradient+update: one program for all 4 draws of a round",
    )


@pytest.mark.long
def test_a_round_hands_over_just_that(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = explained(HOME, on="inline")
    watch = Watch(monkeypatch)
    with rondel.start(at_once, "CartPole-v1", plan=HOME, on="inline", steps=1, lanes=16) as run:
        next(iter(run))
    said = {what: [one.message_bytes] * one.messages for what, one in by_name(facts).items()}
    assert said == watch.seen


def test_copies_take_whole_blocks_of_rows() -> None:
    with pytest.raises(rondel.RondelError) as caught:
        explained("actor*2 | memory | label*4 | gradient+update")
    assert str(caught.value) == (
        "label*4 cannot share the 32 rows of a batch evenly in blocks of 16. Use 1 or 2 copies, or "
        "batches of 64 rows.\n"
        "  actor*2 | memory | label*4 | gradient+update\n"
        "                     ^^^^^^^"
    )


def test_an_algorithm_without_labels_has_no_use_for_it() -> None:
    with pytest.raises(
        rondel.RondelError, match=r"dqn has no stage `label`.*Use `.*gradient.update`"
    ):
        rondel.explain("dqn", "CartPole-v1", plan=HOME, **DQN)
