"""Whatever comes in: a few examples in the quick tests, many in the long ones."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rondel.errors import RondelError

QUICK_AND_LONG = pytest.mark.parametrize(
    "effort", [1, pytest.param(20, marks=pytest.mark.long)], ids=["quick", "long"]
)


def holds(check, strategy, examples):
    """Call `check` with so many examples of what a strategy makes."""
    run = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    run(given(strategy)(check))()


numbers = st.one_of(
    st.integers(-3, 40),
    st.integers(),
    st.sampled_from([2**31, 2**40, 2**63, 10**30, 10**400]),
    st.floats(),
)

anything = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
"""What JSON can hold."""


@st.composite
def mutated(draw, data):
    """Text or bytes with a few places changed, lost, doubled or cut off."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 6)))
        more = draw(st.text(max_size=4) if isinstance(data, str) else st.binary(max_size=4))
        way = draw(st.sampled_from(["replace", "double", "cut"]))
        if way == "replace":
            data = data[:start] + more + data[end:]
        elif way == "double":
            data = data[:end] + data[start:end] + data[end:]
        else:
            data = data[:start]
    return data


def sentence(use, *args):
    """What is said against it, if anything is; any other exception is ours to mend."""
    try:
        use(*args)
    except RondelError as error:
        return str(error)
    return None
