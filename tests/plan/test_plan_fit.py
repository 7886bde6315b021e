"""Which plans fit a run, and what is said of those that don't."""

import pytest

from rondel.errors import RondelError
from rondel.plan.parser import parse
from rondel.plan.presets import PRESETS
from rondel.plan.validate import check, resolve_ranges


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_fits_a_usual_run(name):
    check(parse(name), lanes=32, block=8, max_lag=None)


@pytest.mark.parametrize(
    "text",
    [
        "all",
        "actor*2 | learner",
        "env*16 | policy+learner",
        "env*16 | policy*2 | memory*16 | gradient*16 | update",
        "actor | memory | gradient*7 | update",  # gradient copies split a batch, not lanes
    ],
)
def test_what_splits_evenly_fits(text):
    check(parse(text), lanes=16, block=8, max_lag=0)


@pytest.mark.parametrize(("lag", "max_lag"), [(0, 0), (1, 1), (1, 2), (9, None)])
def test_a_lag_within_the_bound_fits(lag, max_lag):
    check(parse("actor*2 | learner", lag=lag), lanes=16, block=8, max_lag=max_lag)


@pytest.mark.parametrize(
    "text",
    [
        "actor | learner",
        "central",
        "a3c",
        "env | policy | learner",
        "actor+memory | gradient+update",
    ],
)
def test_free_fits_where_policy_and_update_are_apart(text):
    check(parse(text, free=True), lanes=32, block=8, max_lag=None)


LANES = {
    "actors that get unequal shares": (
        "actor*3 | learner",
        16,
        8,
        "actor*3 can't share 16 lanes in blocks of 8 evenly; 1 or 2 copies, or --lanes 24, would "
        "work.\n"
        "  actor*3 | learner\n"
        "  ^^^^^^^",
    ),
    "actors that get half a block": (
        "actor*4 | learner",
        16,
        8,
        "actor*4 has 4 lanes a copy, which is no whole number of blocks of 8; 1 or 2 copies, or "
        "--block 4, or --lanes 32, would work.\n"
        "  actor*4 | learner\n"
        "  ^^^^^^^",
    ),
    "environments that get unequal shares": (
        "env*3 | policy+learner",
        16,
        8,
        "env*3 can't share 16 lanes evenly; 1, 2, 4 or 8 copies, or --lanes 24, would work.\n"
        "  env*3 | policy+learner\n"
        "  ^^^^^",
    ),
    "a policy beside environments": (
        "env*8 | policy*4 | learner",
        16,
        8,
        "policy*4 has 4 lanes a copy, which is no whole number of blocks of 8; 1 or 2 copies, or "
        "--block 4, or --lanes 32, would work.\n"
        "  env*8 | policy*4 | learner\n"
        "          ^^^^^^^^",
    ),
    "shards that get unequal shares, beside four gradients": (
        "actor | memory*12 | gradient*4 | update",
        16,
        8,
        "memory*12 can't share 16 lanes evenly; 2, 4, 8 or 16 copies, or --lanes 24, would work.\n"
        "  actor | memory*12 | gradient*4 | update\n"
        "          ^^^^^^^^^",
    ),
    "a block that does not divide the lanes at all": (
        "all",
        12,
        8,
        "all has 12 lanes a copy, which is no whole number of blocks of 8; --block 6, or "
        "--lanes 16, would work.\n"
        "  all\n"
        "  ^^^",
    ),
    "only one copy has a whole block": (
        "actor*2 | learner",
        8,
        8,
        "actor*2 has 4 lanes a copy, which is no whole number of blocks of 8; 1 copy, or "
        "--block 4, or --lanes 16, would work.\n"
        "  actor*2 | learner\n"
        "  ^^^^^^^",
    ),
}


@pytest.mark.parametrize(("text", "lanes", "block", "message"), LANES.values(), ids=LANES)
def test_lanes_that_can_not_be_shared(text, lanes, block, message):
    with pytest.raises(RondelError) as caught:
        check(parse(text), lanes=lanes, block=block, max_lag=0)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "lanes", "block"),
    [
        ("actor*2 | learner", 16, 8),
        ("actor*4 | learner", 16, 4),
        ("actor*3 | learner", 24, 8),
        ("env*8 | policy*4 | learner", 32, 8),
        ("actor | memory*8 | gradient*4 | update", 16, 8),
        ("all", 12, 6),
    ],
)
def test_what_is_said_to_work_works(text, lanes, block):
    check(parse(text), lanes=lanes, block=block, max_lag=0)


@pytest.mark.parametrize(
    ("lag", "max_lag", "message"),
    [
        (
            1,
            0,
            "ppo learns from what the newest policy did, so its weights may be at most 0 rounds "
            "old, and the plan's lag is 1; --lag 0, or an algorithm that corrects for it, would "
            "work.",
        ),
        (
            3,
            1,
            "ppo takes weights that are a little old, not any, so its weights may be at most 1 "
            "round old, and the plan's lag is 3; --lag 1, or an algorithm that corrects for it, "
            "would work.",
        ),
    ],
)
def test_a_lag_beyond_the_bound(lag, max_lag, message):
    plan = parse("actor*2 | learner", lag=lag)
    with pytest.raises(RondelError) as caught:
        check(plan, lanes=16, block=8, max_lag=max_lag, algorithm="ppo")
    assert str(caught.value) == message


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(RondelError) as caught:
        check(parse("impala"), lanes=16, block=8, max_lag=0, algorithm="ppo")
    assert str(caught.value) == (
        "actor*4 has 4 lanes a copy, which is no whole number of blocks of 8; 1 or 2 copies, or "
        "--block 4, or --lanes 32, would work. Besides, ppo learns from what the newest policy "
        "did, so its weights may be at most 0 rounds old, and the plan's lag is 1; --lag 0, or an "
        "algorithm that corrects for it, would work.\n"
        "  actor*4 | learner\n"
        "  ^^^^^^^"
    )
    check(parse("impala", lag=0), lanes=32, block=8, max_lag=0)


@pytest.mark.parametrize(
    ("text", "piece", "cut"),
    [
        ("all", "all", "actor | learner"),
        ("all*2", "all", "actor*2 | learner"),
        ("env*4 | policy+learner", "policy+learner", "env*4 | policy | learner"),
        ("env*4 | policy+learner*2", "policy+learner", "env*4 | policy*2 | learner"),
    ],
)
def test_free_where_nothing_can_overlap(text, piece, cut):
    with pytest.raises(RondelError) as caught:
        check(parse(text, free=True), lanes=16, block=8, max_lag=None)
    sentence, shown, carets = str(caught.value).split("\n")
    assert sentence == (
        f"--free has nothing to overlap here: {piece} acts and updates, one after the other; "
        f"`{cut}`, or this plan without --free, would work."
    )
    assert shown == f"  {text}"
    assert shown[carets.index("^") :].startswith(piece)
    check(parse(cut, free=True), lanes=16, block=8, max_lag=None)


def test_free_copies_that_keep_their_own_items():
    plan = parse("actor+memory*2 | gradient | update", free=True)
    with pytest.raises(RondelError, match="a cut between policy and memory, or this plan without"):
        check(plan, lanes=16, block=8, max_lag=None)


def test_free_gradients_of_their_own_are_older_than_the_lag():
    plan = parse("a3c*2", lag=0)
    with pytest.raises(RondelError, match="ppo takes weights that are at most 0 rounds old"):
        check(plan, lanes=16, block=8, max_lag=0, algorithm="ppo")
    check(plan, lanes=16, block=8, max_lag=1)


@pytest.mark.parametrize(
    ("text", "room", "plan"),
    [
        ("actor*1..6 | learner", 3, "actor*2 | learner"),  # 3 can't share 32 lanes
        ("actor*1..6 | learner", 99, "actor*4 | learner"),
        ("actor*2..4 | learner", 1, "actor*2 | learner"),  # the least run, room or not
        ("actor*auto | learner", 2, "actor*2 | learner"),
        ("actor*auto | learner", 99, "actor*4 | learner"),  # no more than there are blocks
        ("env*auto | policy*2 | learner", 99, "env*32 | policy*2 | learner"),
        ("actor*1..4 | memory*2 | gradient+update", 3, "actor*2 | memory*2 | gradient+update"),
        ("actor*1..6 | learner", None, "actor*1..4 | learner"),  # it stays a range
        ("actor*auto | learner", None, "actor*1..4 | learner"),
        ("actor*4 | learner", 1, "actor*4 | learner"),
    ],
)
def test_a_range_is_settled(text, room, plan):
    assert str(resolve_ranges(parse(text), lanes=32, block=8, room=room)) == plan


def test_a_range_without_a_number_that_fits():
    with pytest.raises(RondelError) as caught:
        resolve_ranges(parse("actor*3..3 | learner"), lanes=32, block=8, room=9)
    assert str(caught.value) == (
        "No number of copies in actor*3..3 can share 32 lanes in blocks of 8 evenly; actor*1, 2 or "
        "4, or --lanes 24, would work.\n  actor*3..3 | learner\n  ^^^^^^^^^^"
    )


@pytest.mark.parametrize(
    ("text", "work"),
    [
        ("actor*2 | memory | label*2 | gradient+update", "actor*2 | memory | gradient+update"),
        ("actor | memory+label+gradient+update", "actor | learner"),
    ],
)
def test_a_label_is_only_for_algorithms_that_have_one(text, work):
    check(parse(text), lanes=16, block=8, max_lag=0)
    with pytest.raises(RondelError) as caught:
        check(parse(text), lanes=16, block=8, max_lag=0, algorithm="dqn", labels=False)
    said, written, _ = str(caught.value).split("\n")
    assert said == (
        f"dqn has no stage `label`: it makes its targets with its gradients; `{work}` would work."
    )
    assert written.strip() == text
    check(parse(work), lanes=16, block=8, max_lag=0, labels=False)
