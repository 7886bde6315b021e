"""Environments by name, and what importing them does not import."""

import subprocess
import sys
from types import ModuleType

import gymnasium
import numpy as np
import pytest

from envs.strange import Plain
from rondel.envs.errors import EnvError
from rondel.envs.registry import id_without_world, known_ids, make
from rondel.envs.world import is_installed
from rondel.errors import RondelError
from rondel.types import Env, HostWorld

needs_envpool = pytest.mark.skipif(not is_installed("envpool"), reason="EnvPool is absent")


def test_an_id_without_a_world_takes_the_first_that_has_it():
    assert make("CartPole-v1").spec.id == "jax:CartPole-v1"
    assert make("FrozenLake-v1").spec.id == "gymnasium:FrozenLake-v1"
    assert make("gymnasium:CartPole-v1").spec.id == "gymnasium:CartPole-v1"
    assert make("delay").spec.id == "probe:delay"


def test_what_is_an_environment_already_stays_as_it_is():
    env, world = make("CartPole-v1"), make("gymnasium:CartPole-v1")
    assert make(env) is env
    assert make(world) is world
    assert make(lambda: env) is env
    assert isinstance(make(Plain), HostWorld)
    assert isinstance(make(Plain()), HostWorld)


def test_a_module_before_a_gymnasium_id_is_imported():
    spec = make("gymnasium:gymnasium.envs:CartPole-v1").spec
    assert spec.id == "gymnasium:gymnasium.envs:CartPole-v1"


def test_one_of_your_own_is_named_by_its_module(tmp_path, monkeypatch):
    (tmp_path / "my_worlds.py").write_text(
        "from rondel.envs.registry import make\n"
        "from envs.strange import Plain\n"
        "line = make('probe:one')\n"
        "def build():\n"
        "    return line\n"
    )
    (tmp_path / "my_broken.py").write_text("1 / 0\n")
    (tmp_path / "my_needy.py").write_text("import nowhere_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert make("my_worlds:line") is make("my_worlds:build")
    assert make("my_worlds:Plain").spec.id == "own:Plain"
    with pytest.raises(RondelError, match=r"my_worlds has no 'lime'\. Did you mean my_worlds:line"):
        make("my_worlds:lime")
    with pytest.raises(EnvError, match="ZeroDivisionError") as caught:
        make("my_broken:line")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(EnvError, match="No module named 'nowhere_at_all'"):
        make("my_needy:line")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("Cartpole-v1", ["no environment 'Cartpole-v1'", "jax:CartPole-v1"]),
        ("jax:Pendulum-v0", ["jax:Pendulum-v1"]),
        ("gymnasium:FrozenLak-v1", ["gymnasium:FrozenLake-v1"]),
        ("gymnasium:CartPole", ["gymnasium:CartPole-v1"]),
        ("probe:delayed", ["probe:delay"]),
        ("zzz", ["no environment 'zzz'"]),
        (
            "atari:Pong",
            [
                "must begin with a world or a module",
                "got 'atari'",
                "jax, gymnasium, envpool, envpool-xla, gymnax, pgx, probe",
                "gymnasium:atari:Pong",
            ],
        ),
        ("gymnasium:nowhere_at_all:X-v0", ["nowhere_at_all"]),
        ("gymnasium:Taxi-v3", ["Taxi-v4"]),
        ("CartPole-v1?velocities=no", ["velocities must be true or false, got no"]),
        ("jax:CartPole-v1?speed=1", ["no argument speed", "velocities"]),
        (7, ["must be an id", "got 7"]),
        (gymnasium.make_vec("CartPole-v1", 4), ["vector environment", "lanes=4"]),
        (lambda: 7, ["must return a gymnasium.Env", "got a int"]),
    ],
)
def test_what_is_unknown_gets_a_sentence(asked, words):
    with pytest.raises(RondelError) as caught:
        make(asked)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_version_alone_makes_no_name_near(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(RondelError) as caught:
        make("Pong-v5")
    assert "Ant" not in str(caught.value)
    assert 'envpool may have it (pip install "rondel[envpool]").' in str(caught.value)


@needs_envpool
@pytest.mark.parametrize("world", ["", "gymnasium:", "envpool:"])
def test_old_names_of_atari_lead_to_envpools(world):
    with pytest.raises(RondelError, match=r"Did you mean envpool:Pong-v5\?$"):
        make(f"{world}PongNoFrameskip-v4")


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("gymnasium:CartPoll-v1", "gymnasium:CartPole-v1"),  # no phys2d/CartPole-v1
        ("jax:CartPoll-v1", "jax:CartPole-v1"),
        ("jax:CartPole-v0", "jax:CartPole-v1"),  # though Gymnasium has it
        ("jax:MountainCarr-v0", "jax:MountainCar-v0 or jax:MountainCarContinuous-v0"),
    ],
)
def test_near_names_are_few_new_and_of_the_world_that_was_asked(asked, meant):
    with pytest.raises(RondelError) as caught:
        make(asked)
    assert str(caught.value) == f"There is no environment {asked!r}. Did you mean {meant}?"


@pytest.mark.parametrize("asked", ["CartPol-v1", "CartPole-v9"])
def test_near_names_of_no_world_are_two_at_most_and_of_the_newest_version(asked):
    with pytest.raises(RondelError, match=r"Did you mean jax:CartPole-v1( or [^ ]+)?\?$") as caught:
        make(asked)
    assert "v0" not in str(caught.value)
    assert "phys2d" not in str(caught.value)


def test_a_module_is_no_environment(monkeypatch):
    own = ModuleType("own_worlds")
    own.np = np
    monkeypatch.setitem(sys.modules, "own_worlds", own)
    with pytest.raises(RondelError, match=r"that makes one, got the module numpy\.$"):
        make("own_worlds:np")


BOX2D = 'gymnasium:LunarLander-v3 needs Box2D (pip install "rondel[box2d]").'


@pytest.fixture
def no_box2d(monkeypatch):
    """Gymnasium imports Box2D with the module of the environment."""
    for name in [n for n in sys.modules if n.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Box2D", None)


@needs_envpool
@pytest.mark.usefixtures("no_box2d")
def test_what_gymnasium_can_not_make_here_comes_from_envpool(caplog):
    assert make("LunarLander-v3").spec.id == "envpool:LunarLander-v3"
    assert caplog.messages == [f"Using envpool:LunarLander-v3, since {BOX2D}"]
    with pytest.raises(RondelError) as caught:
        make("LunarLander-v3?no_such=1")
    assert "Box2D" in str(caught.value)
    assert "envpool:LunarLander-v3?no_such=1 has no argument no_such. It has" in str(caught.value)
    with pytest.raises(RondelError) as caught:
        make("gymnasium:LunarLander-v3")
    assert str(caught.value) == f"{BOX2D} Or use envpool:LunarLander-v3."
    assert not isinstance(caught.value, EnvError)  # which would show Gymnasium's traceback


@pytest.mark.usefixtures("no_box2d")
def test_what_nobody_can_make_here_says_how_to_install_it(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "envpool", None)
    for module in ("pool", "xla_pool"):
        monkeypatch.delitem(sys.modules, f"rondel.envs.envpool.{module}", raising=False)
    with pytest.raises(RondelError) as caught:
        make("LunarLander-v3")
    envpool = 'envpool:LunarLander-v3 needs envpool (pip install "rondel[envpool]").'
    assert str(caught.value) == f"{BOX2D} {envpool}"
    assert not caplog.messages


@needs_envpool
@pytest.mark.filterwarnings("ignore:.*out of date")
def test_versions_that_gymnasium_gave_up_may_be_in_envpool(caplog):
    assert make("HalfCheetah-v3").spec.id == "envpool:HalfCheetah-v3"
    assert "since gymnasium:HalfCheetah-v3 can't be made: " in caplog.messages[0]
    with pytest.raises(RondelError, match="Or use envpool:HalfCheetah-v3") as caught:
        make("gymnasium:HalfCheetah-v3")
    assert not isinstance(caught.value, EnvError)


def test_near_names_are_three_at_most():
    with pytest.raises(RondelError) as caught:
        make("Mountain-v0")
    assert str(caught.value).count(":") <= 4


def test_names_are_listed_by_world():
    listed = known_ids()
    assert listed["jax"][0] == "CartPole-v1"
    assert "delay" in listed["probe"]
    assert set(listed["gymnasium"]) == set(gymnasium.registry)
    for asked in ("jax", "probe"):
        for name in listed[asked]:
            assert isinstance(make(f"{asked}:{name}"), Env)


def test_bare_ids():
    assert id_without_world("jax:CartPole-v1") == "CartPole-v1"
    assert id_without_world("gymnasium:module:X-v0") == "module:X-v0"
    assert id_without_world("module:X-v0") == "module:X-v0"
    assert id_without_world("CartPole-v1") == "CartPole-v1"


def imported(code: str) -> set[str]:
    """Which of the heavy libraries a fresh interpreter has imported after `code`."""
    report = f"{code}\nimport sys; print(*{{'jax', 'gymnasium'}} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(out.stdout.split())


def test_importing_is_light_and_host_environments_need_no_jax():
    assert imported("import rondel.envs") == set()
    code = (
        "import numpy as np; from rondel.envs.guard.check import check\n"
        "from rondel.envs.registry import make\n"
        "world = make('gymnasium:CartPole-v1'); check(world)\n"
        "host = world.make(2); host.reset([0, 1]); host.step(np.array([0, 1])); host.close()"
    )
    assert imported(code) == {"gymnasium"}
