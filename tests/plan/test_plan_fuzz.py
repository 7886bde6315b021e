"""Any text is a plan or a sentence, and soon."""

import pytest
from hypothesis import strategies as st

from fuzz import QUICK_AND_LONG, holds, mutated
from rondel.errors import RondelError
from rondel.plan.parser import parse
from rondel.plan.pieces import ALIASES, ORDER
from rondel.plan.plan import check_fit, resolve_ranges
from rondel.plan.presets import PRESETS
from rondel.plan.resources import resources_for

pytestmark = pytest.mark.fault

PLANS = [
    "all",
    "actor*4..16 | learner",
    "impala*auto",
    "actor*8 | learner",
    "env*4|policy+memory*2 | gradient*2 | update",
    *PRESETS,
]
RESOURCES = ["actor:cpu=1 learner:cpu=4,gpu=1", "env:memory=4GiB,x-y=0.5", "update : cpu = 2"]
WORDS = [
    *ORDER,
    *ALIASES,
    *PRESETS,
    *"+|*:=, .-_\n\t",
    "*4",
    "..",
    "auto",
    "-1",
    "999999999",
    "1e308",
    "TiB",
]

jumbled = st.lists(st.sampled_from(WORDS), max_size=14).map("".join)


def like(texts):
    return st.one_of(st.text(), jumbled, st.sampled_from(texts).flatmap(mutated))


def assert_sentence(error):
    first = str(error).splitlines()[0]
    assert first.rstrip()[-1] in ".?", first


@QUICK_AND_LONG
def test_any_text_is_a_plan_or_a_sentence(effort):
    def one(text):
        try:
            plan = parse(text)
        except RondelError as error:
            assert_sentence(error)
        else:
            assert parse(str(plan), plan.lag, plan.free) == plan

    holds(one, like(PLANS), 400 * effort)


@QUICK_AND_LONG
def test_any_text_is_resources_or_a_sentence(effort):
    plan = parse("env*4 | policy | learner")

    def one(text):
        try:
            needs = resources_for(plan, text)
        except RondelError as error:
            assert_sentence(error)
        else:
            assert all(0 <= amount < float("inf") for need in needs for amount in need.values())

    holds(one, like(RESOURCES), 400 * effort)


@QUICK_AND_LONG
def test_any_plan_fits_or_gets_a_sentence(effort):
    count = st.integers(1, 40) | st.integers(1, 2**40)
    asked = st.tuples(like(PLANS), count, count, st.none() | st.integers(0, 3))

    def one(asked):
        text, lanes, block, max_lag = asked
        try:
            plan = resolve_ranges(parse(text), lanes=lanes, block=block, cores=2)
            check_fit(plan, lanes=lanes, block=block, max_lag=max_lag)
        except RondelError as error:
            assert_sentence(error)

    holds(one, asked, 100 * effort)


@pytest.mark.parametrize("text", ["all " * 10**6, "a" * 10**7, "*" * 10**6, "actor|" * 10**5])
def test_what_is_too_long_is_refused_at_once(text):
    for read in (parse, lambda text: resources_for(parse("all"), text)):
        with pytest.raises(RondelError, match="must have at most 1,000 characters") as error:
            read(text)
        assert len(str(error.value)) < 200


@pytest.mark.timeout(20)
def test_what_would_work_is_found_among_many_lanes():
    with pytest.raises(RondelError, match=r"1, 2, 4 or 5 copies, or --lanes 1000000000002"):
        check_fit(parse("actor*3 | learner"), lanes=10**12, block=1, max_lag=0)


def test_memory_without_end_is_refused():
    with pytest.raises(RondelError, match=r"memory must be bytes, .* got '9"):
        resources_for(parse("all"), f"all:memory={'9' * 305}TiB")


def test_a_lag_that_nothing_could_hold_is_refused():
    with pytest.raises(RondelError, match="an integer from 0 to 1,000, got 1000000000"):
        parse("all", lag=10**9)
