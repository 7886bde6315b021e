"""Which of many cases `make test` takes; all are in `make test-full`."""

from collections.abc import Container, Iterable
from typing import Any

import pytest


def few_of(cases: Iterable[Any], quick: Container[Any]) -> list[Any]:
    """The cases, with those that are not among the quick ones marked as long."""
    long = pytest.mark.long
    each = ((case, case if isinstance(case, tuple) else (case,)) for case in cases)
    return [case if case in quick else pytest.param(*parts, marks=long) for case, parts in each]
