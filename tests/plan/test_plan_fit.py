"""Which plans fit a run, and the errors of those that do not."""

import pytest

from rondel.errors import RondelError
from rondel.plan.parser import parse
from rondel.plan.plan import check_fit, resolve_ranges
from rondel.plan.presets import PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_fits_a_usual_run(name):
    check_fit(parse(name), lanes=32, block=8, max_lag=None)


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
    check_fit(parse(text), lanes=16, block=8, max_lag=0)


@pytest.mark.parametrize(("lag", "max_lag"), [(0, 0), (1, 1), (1, 2), (9, None)])
def test_a_lag_within_the_bound_fits(lag, max_lag):
    check_fit(parse("actor*2 | learner", lag=lag), lanes=16, block=8, max_lag=max_lag)


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
    check_fit(parse(text, lag=1, free=True), lanes=32, block=8, max_lag=None)


LANES = {
    "actors that get unequal shares": (
        "actor*3 | learner",
        16,
        8,
        "actor*3 cannot share 16 lanes in blocks of 8 evenly. Use 1 or 2 copies, or "
        "--lanes 24.\n"
        "  actor*3 | learner\n"
        "  ^^^^^^^",
    ),
    "actors that get half a block": (
        "actor*4 | learner",
        16,
        8,
        "actor*4 has 4 lanes per copy, which must be a multiple of the block, 8. Use 1 or 2 "
        "copies, or --block 4, or --lanes 32.\n"
        "  actor*4 | learner\n"
        "  ^^^^^^^",
    ),
    "environments that get unequal shares": (
        "env*3 | policy+learner",
        16,
        8,
        "env*3 cannot share 16 lanes evenly. Use 1, 2, 4 or 8 copies, or --lanes 24.\n"
        "  env*3 | policy+learner\n"
        "  ^^^^^",
    ),
    "a policy beside environments": (
        "env*8 | policy*4 | learner",
        16,
        8,
        "policy*4 has 4 lanes per copy, which must be a multiple of the block, 8. Use 1 or 2 "
        "copies, or --block 4, or --lanes 32.\n"
        "  env*8 | policy*4 | learner\n"
        "          ^^^^^^^^",
    ),
    "shards that get unequal shares, beside four gradients": (
        "actor | memory*12 | gradient*4 | update",
        16,
        8,
        "memory*12 cannot share 16 lanes evenly. Use 2, 4, 8 or 16 copies, or --lanes 24.\n"
        "  actor | memory*12 | gradient*4 | update\n"
        "          ^^^^^^^^^",
    ),
    "a block that does not divide the lanes at all": (
        "all",
        12,
        8,
        "all has 12 lanes per copy, which must be a multiple of the block, 8. Use --block 6, "
        "or --lanes 16.\n"
        "  all\n"
        "  ^^^",
    ),
    "only one copy has a whole block": (
        "actor*2 | learner",
        8,
        8,
        "actor*2 has 4 lanes per copy, which must be a multiple of the block, 8. Use 1 copy, or "
        "--block 4, or --lanes 16.\n"
        "  actor*2 | learner\n"
        "  ^^^^^^^",
    ),
}


@pytest.mark.parametrize(("text", "lanes", "block", "message"), LANES.values(), ids=LANES)
def test_lanes_that_can_not_be_shared(text, lanes, block, message):
    with pytest.raises(RondelError) as caught:
        check_fit(parse(text), lanes=lanes, block=block, max_lag=0)
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
    check_fit(parse(text), lanes=lanes, block=block, max_lag=0)


@pytest.mark.parametrize(
    ("algorithm", "lag", "max_lag", "message"),
    [
        (
            "ppo",
            1,
            0,
            "The lag of ppo must be 0, got 1. Use --lag 0, or an algorithm that corrects for lag "
            "(`rondel list algorithms`).",
        ),
        (
            "ppo",
            3,
            1,
            "The lag of ppo must be at most 1, got 3. Use --lag 1, or an algorithm that corrects "
            "for lag (`rondel list algorithms`).",
        ),
        (
            "mine:make",
            1,
            0,
            "The lag of mine:make must be 0, got 1. Use --lag 0, or set max_lag in the Algorithm "
            "that it returns.",
        ),
    ],
)
def test_a_lag_beyond_the_bound(algorithm, lag, max_lag, message):
    plan = parse("actor*2 | learner", lag=lag)
    with pytest.raises(RondelError) as caught:
        check_fit(plan, lanes=16, block=8, max_lag=max_lag, algorithm=algorithm)
    assert str(caught.value) == message


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(RondelError) as caught:
        check_fit(parse("impala"), lanes=16, block=8, max_lag=0, algorithm="ppo")
    assert str(caught.value) == (
        "actor*4 has 4 lanes per copy, which must be a multiple of the block, 8. Use 1 or 2 "
        "copies, or --block 4, or --lanes 32. The lag of ppo must be 0, got 1. Use --lag 0 "
        "--no-free, or an algorithm that corrects for lag (`rondel list algorithms`).\n"
        "  actor*4 | learner\n"
        "  ^^^^^^^"
    )
    check_fit(parse("impala", lag=0, free=False), lanes=32, block=8, max_lag=0)


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
        check_fit(parse(text, free=True), lanes=16, block=8, max_lag=None)
    sentence, shown, carets = str(caught.value).split("\n")
    assert sentence == (
        f"--free gains nothing where one piece acts and updates, here {piece}. Use `{cut}`, or "
        "leave --free out."
    )
    assert shown == f"  {text}"
    assert shown[carets.index("^") :].startswith(piece)
    check_fit(parse(cut, lag=1, free=True), lanes=16, block=8, max_lag=None)


@pytest.mark.parametrize(
    ("max_lag", "message"),
    [
        (0, "--free gains nothing where ppo must learn with lag 0: .* Leave --free out"),
        (None, "--free gains nothing where the lag is 0: .* Use --lag 1, or leave --free out"),
    ],
)
def test_free_without_lag_gains_nothing(max_lag, message):
    plan = parse("actor*2 | learner", free=True)
    with pytest.raises(RondelError, match=message):
        check_fit(plan, lanes=16, block=8, max_lag=max_lag, algorithm="ppo")
    # on Ray copies may come and go only in a free run
    check_fit(parse("actor*1..2 | learner", free=True), lanes=16, block=8, max_lag=max_lag)


def test_free_copies_that_keep_their_own_items():
    plan = parse("actor+memory*2 | gradient | update", lag=1, free=True)
    with pytest.raises(RondelError, match="Cut between policy and memory, or leave"):
        check_fit(plan, lanes=16, block=8, max_lag=None)


def test_free_gradients_of_their_own_are_older_than_the_lag():
    plan = parse("a3c*2", lag=0)
    with pytest.raises(RondelError, match="ppo tolerates a lag of 0, but free copies"):
        check_fit(plan, lanes=16, block=8, max_lag=0, algorithm="ppo")
    check_fit(plan, lanes=16, block=8, max_lag=1)


@pytest.mark.parametrize(
    ("text", "cores", "plan"),
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
def test_a_range_is_settled(text, cores, plan):
    assert str(resolve_ranges(parse(text), lanes=32, block=8, cores=cores)) == plan


def test_a_range_without_a_number_that_fits():
    with pytest.raises(RondelError) as caught:
        resolve_ranges(parse("actor*3..3 | learner"), lanes=32, block=8, cores=9)
    assert str(caught.value) == (
        "No number of copies in actor*3..3 can share 32 lanes in blocks of 8 evenly. Use actor*1, "
        "2 or 4, or --lanes 24.\n  actor*3..3 | learner\n  ^^^^^^^^^^"
    )


@pytest.mark.parametrize(
    ("text", "work"),
    [
        ("actor*2 | memory | label*2 | gradient+update", "actor*2 | memory | gradient+update"),
        ("actor | memory+label+gradient+update", "actor | learner"),
    ],
)
def test_a_label_is_only_for_algorithms_that_have_one(text, work):
    check_fit(parse(text), lanes=16, block=8, max_lag=0)
    with pytest.raises(RondelError) as caught:
        check_fit(parse(text), lanes=16, block=8, max_lag=0, algorithm="dqn", labels=False)
    said, written, _ = str(caught.value).split("\n")
    assert said == (
        f"dqn has no stage `label`: it computes targets with its gradients. Use `{work}`."
    )
    assert written.strip() == text
    check_fit(parse(work), lanes=16, block=8, max_lag=0, labels=False)
