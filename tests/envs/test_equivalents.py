"""The same environments in other worlds: what is said of them is true."""

from __future__ import annotations

import pytest

from rondel.envs.envpool.world import AS_IN_GYMNASIUM
from rondel.envs.registry import equivalents


def test_what_envpool_is_said_to_have_it_has() -> None:
    pytest.importorskip("envpool")
    from rondel.envs.envpool.pool import registered
    from rondel.envs.gymnasium.make import is_registered

    assert set(registered()) >= AS_IN_GYMNASIUM | {"Pong-v5", "Breakout-v5"}
    assert all(map(is_registered, AS_IN_GYMNASIUM))  # else nobody would ask


@pytest.mark.parametrize(
    ("env", "there"),
    [
        ("gymnasium:CartPole-v1", ["jax:CartPole-v1"]),
        ("gymnasium:Humanoid-v5", ["envpool:Humanoid-v5"]),
        ("gymnasium:ALE/MsPacman-v5", ["envpool:MsPacman-v5"]),
        ("gymnasium:Humanoid-v2", []),
        ("gymnasium:FrozenLake-v1?map_name=8x8", []),  # EnvPool has other arguments
        ("envpool:CartPole-v1", ["jax:CartPole-v1"]),
        ("envpool-xla:FrozenLake-v1", []),  # the same lanes
        ("jax:CartPole-v1", []),
        ("my_module:Ant-v5", []),
        ("Ant-v5", []),
    ],
)
def test_where_the_same_environment_is(env: str, there: list[str]) -> None:
    assert [found.id for _, found in equivalents(env)] == there
