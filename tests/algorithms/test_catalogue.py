"""The catalogue: every row of the table is whole, and custom algorithms are found too."""

from functools import partial
from types import ModuleType

import pytest

import rondel
from rondel.algorithms import catalogue, ppo, td3
from rondel.algorithms.card import Card
from rondel.errors import OwnCodeError, RondelError
from rondel.plan.parser import parse
from rondel.plan.plan import check_fit

MINE = '''\
"""A policy that learns nothing."""

from dataclasses import dataclass

import jax.numpy as jnp

from rondel.algorithms import ppo
from rondel.algorithms.card import Card


@dataclass(frozen=True)
class Config(ppo.Config):
    rollout: int = 8
    hidden: tuple[int, ...] = (4,)


CARD = Card(lanes=4, max_lag=1)


def make(config, spec, model=None):
    assert model is not None and model.spec.id == spec.id
    return ppo.make(config, spec)._replace(max_lag=CARD.max_lag)


def short(config):
    return None


number = 3
'''


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module of the user's, new for every test."""
    name = f"mine_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(MINE)
    (tmp_path / f"{name}_broken.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.mark.parametrize("name", catalogue.TABLE)
def test_every_row_of_the_table_is_whole(name):
    found = catalogue.find(name)
    assert found.name == name
    assert found.config() is not None
    parse(found.card.plan)  # raises where it is no plan
    assert found.card.family != Card().family
    assert found.card.paper
    assert found.card.lanes >= 1
    assert found.summary.endswith(".")


@pytest.mark.parametrize("name", catalogue.TABLE)
def test_the_plan_of_a_card_takes_its_algorithm_as_it_comes(name):
    card = catalogue.find(name).card
    check_fit(
        parse(card.plan),
        lanes=card.lanes,
        block=8 if card.lanes % 8 == 0 else card.lanes,  # as a run has it by default
        max_lag=card.max_lag,
        algorithm=name,
        labels="label" in card.plan,
    )


def test_algorithms_with_memory_are_recurrent():
    assert [name for name in catalogue.TABLE if catalogue.find(name).recurrent] == [
        "ppo", "r2d2", "r2d3", "a2c", "a3c", "impala", "appo"
    ]  # fmt: skip


def test_modules_and_functions_of_ours_are_found_under_their_names():
    assert catalogue.find(ppo) == catalogue.find(ppo.make) == catalogue.find("ppo")
    assert catalogue.find(td3) == catalogue.find("td3")


def test_a_custom_algorithm_is_found_by_its_path(mine):
    found = catalogue.find(f"{mine}:make")
    assert found == catalogue.find(mine) == catalogue.find(found.make)
    assert found.name == f"{mine}:make"
    assert found.config().rollout == 8
    assert found.card == Card(lanes=4, max_lag=1)
    assert found.summary == "A policy that learns nothing."


def test_what_no_import_leads_to_is_named_as_such():
    assert catalogue.find(lambda config, spec: None).name == "own:<lambda>"
    assert catalogue.find(partial(ppo.make)).name == "own:partial"
    module = ModuleType("elsewhere")
    module.make = ppo.make
    assert catalogue.find(module)._replace(make=None) == ("elsewhere:make", None, None, Card(), "")


def test_a_custom_algorithm_trains_by_its_path_and_goes_on_when_it_is_passed_again(mine, tmp_path):
    asked = {"out": tmp_path / "run", "eval_episodes": 2, "epochs": 1, "minibatches": 2}
    run = rondel.train(f"{mine}:make", "CartPole-v1", steps=64, **asked)
    assert run.result["algorithm"] == f"{mine}:make"
    assert run.setup.options.lanes == 4
    assert run.setup.config.rollout == 8
    assert run.setup.config.epochs == 1
    with pytest.raises(RondelError, match=f"'{mine}:make'"):  # files name no code to import
        rondel.load(tmp_path / "run")
    again = rondel.load(tmp_path / "run", algorithm=mine)
    assert again.steps == run.steps >= 64


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ("pppo", r"Unknown algorithm 'pppo'\. Did you mean ppo\? Your own is module:function"),
        ("!!", r"Unknown algorithm '!!'\. Use one of ppo, .*\. Your own is module:function\."),
        ("absent.module:make", "Module 'absent.module' of algorithm 'absent.mod"),
        ("{}:run", "The module {} has no function 'run'."),
        ("{}:short", r"{}:short must be a function of \(config, spec\): too many positional"),
        ("{}:jnp", r"{}:jnp must be a function of \(config, spec\), got the module jax\.numpy\."),
        ("{}:number", r"{}:number must be a function of \(config, spec\): 3 is not a callable"),
        ("json", "The module json has no function 'make'."),
        (3, "algorithm must be a name, a module or a function, got 3. Use one of ppo, "),
    ],
)
def test_what_can_not_be_found_gets_a_sentence(mine, asked, sentence):
    asked = asked.format(mine) if isinstance(asked, str) else asked
    with pytest.raises(RondelError, match=sentence.replace("{}", mine)):
        catalogue.find(asked)


def test_a_module_that_raises_is_told_apart_from_one_that_is_not_there(mine):
    with pytest.raises(OwnCodeError, match="failed: ModuleNotFoundError") as raised:
        catalogue.find(f"{mine}_broken:make")
    assert "a_module_that_is_not_there" in str(raised.value.__cause__)
