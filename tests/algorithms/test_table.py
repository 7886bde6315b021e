"""The table of algorithms: every row is whole, and its name leads there and back."""

from types import ModuleType

import pytest

from rondel.algorithms import catalogue
from rondel.plan.parser import parse
from rondel.plan.validate import check


@pytest.mark.parametrize("name", catalogue.TABLE)
def test_a_name_leads_to_a_module_and_back(name):
    module = catalogue.find(name)
    assert catalogue.name_of(module) == name
    assert module.Config() is not None
    parse(module.HOME)  # raises where it is no plan
    for word in ("FAMILY", "ACTIONS", "PAPER"):
        assert getattr(module, word)
    assert module.LANES >= 1


@pytest.mark.parametrize("name", catalogue.TABLE)
def test_its_home_plan_takes_it_as_it_comes(name):
    module = catalogue.find(name)
    block = 8 if module.LANES % 8 == 0 else module.LANES  # as a run that says nothing of it has
    check(
        parse(module.HOME),
        lanes=module.LANES,
        block=block,
        max_lag=module.MAX_LAG,
        algorithm=name,
        labels="label" in module.HOME,
    )


def test_a_module_that_is_not_in_the_table_is_called_by_its_own_name():
    assert catalogue.name_of(ModuleType("mine.own_one")) == "own_one"
