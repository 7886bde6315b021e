"""The same environments elsewhere: what is said of them is true."""

from __future__ import annotations

import pytest

from rondel.envs.equivalents import IN_ENVPOOL, faster_equivalent


def test_what_envpool_is_said_to_have_it_has() -> None:
    pytest.importorskip("envpool")
    from rondel.envs.envpool.pool import registered
    from rondel.envs.gymnasium.make import is_registered

    assert set(registered()) >= IN_ENVPOOL | {"Pong-v5", "Breakout-v5"}
    assert all(map(is_registered, IN_ENVPOOL))  # else nobody would ask


@pytest.mark.parametrize(
    ("env", "there"),
    [
        ("gymnasium:CartPole-v1", "jax:CartPole-v1"),
        ("gymnasium:Humanoid-v5", "envpool:Humanoid-v5"),
        ("gymnasium:ALE/MsPacman-v5", "envpool:MsPacman-v5"),
        ("gymnasium:Humanoid-v2", None),
        ("gymnasium:FrozenLake-v1?map_name=8x8", None),  # EnvPool has other arguments
        ("jax:CartPole-v1", None),
        ("Ant-v5", None),
    ],
)
def test_where_the_same_is_quicker(env: str, there: str | None) -> None:
    assert faster_equivalent(env) == there
