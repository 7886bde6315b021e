"""The table of algorithms: every row is whole, and its name leads there and back."""

from types import ModuleType

import pytest

from rondel import algorithms
from rondel.plan import parse


@pytest.mark.parametrize("name", algorithms.TABLE)
def test_a_name_leads_to_a_module_and_back(name):
    module = algorithms.find(name)
    assert algorithms.name_of(module) == name
    assert module.Config() is not None
    parse(module.HOME)  # raises where it is no plan
    for word in ("FAMILY", "ACTIONS", "PAPER"):
        assert getattr(module, word)
    assert module.LANES >= 1


def test_a_module_that_is_not_in_the_table_is_called_by_its_own_name():
    assert algorithms.name_of(ModuleType("mine.own_one")) == "own_one"
