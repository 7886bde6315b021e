"""What shares mean: the bottleneck of a run, and how a sentence names it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rondel.run.profiling.diagnosis import diagnose, summary
from rondel.run.profiling.profile import can_time_stages
from rondel.run.profiling.run_profile import Profile
from run.made_up import APART, FUSED, IDLE, made_up, piece, uneven

LEARNER = piece("learner", memory_data=0.8, learner_xla=0.2)
ROOMY = piece("actor", 4, actor_room=0.7, actor_xla=0.3)
BETWEEN = piece("driver", driver_callback=0.9, driver_output=0.02, driver_rounds=0.08)
# one actor of four is busy, and its learner for a little
SLOW_COPY = uneven(
    "actor",
    *[{"env_simulator": 0.1, "actor_weights": 0.9}] * 3,
    {"env_simulator": 0.9, "actor_weights": 0.1},
)
TINY = {"more_rows": 1.2, "one_step": 1e-4}


@pytest.mark.parametrize(
    ("seen", "bound", "part"),
    [
        # one process: what takes most
        (made_up(piece("all", env_simulator=0.71, policy_xla=0.29)), "env", 0.71),
        (made_up(piece("all", env_simulator=0.2, learner_xla=0.8)), "learner", 0.8),
        (made_up(piece("all", policy_python=0.6, env_simulator=0.4)), "python", 0.6),
        (made_up(piece("all", driver_callback=0.7, all_xla=0.3)), "callback", 0.7),
        # several: what takes most in the piece that waits least
        (
            made_up(
                piece("actor", 4, env_simulator=0.7, policy_xla=0.1, policy_weights=0.2), LEARNER
            ),
            *("env", 0.7),
        ),
        (
            made_up(ROOMY, piece("learner", learner_xla=0.9, memory_data=0.1), free=True, lag=1),
            *("learner", 0.9),
        ),
        # without lag pieces take turns, so what each hands over adds up, with what is on
        # its way meanwhile: 0.2 + 0.15 + (1 - 0.5 - 0.4)
        (
            made_up(
                piece("actor", actor_xla=0.3, actor_transport=0.2, actor_weights=0.5),
                piece("learner", learner_xla=0.25, learner_transport=0.15, memory_data=0.6),
            ),
            *("transport", 0.45),
        ),
        # what nobody is busy with is on its way: 1 - 0.3 - 0.2; the driver's 0.01 is its own
        (
            made_up(piece("actor", actor_weights=0.7, actor_xla=0.3), LEARNER, driver=IDLE),
            *("transport", 0.49),
        ),
        # of that, 0.4 went by while someone who had died was started again
        (
            made_up(
                piece("actor", actor_weights=0.7, actor_xla=0.3),
                LEARNER,
                **{"driver": IDLE, "restarts": 10, "lost": 0.4},
            ),
            *("restarts", 0.4),
        ),
        # in a free run the others go on meanwhile
        (
            made_up(ROOMY, LEARNER, **{"free": True, "lag": 1, "restarts": 10, "lost": 0.9}),
            *("actor", 0.3),
        ),
        # the others wait 0.9 - (3 * 0.1 + 0.9) / 4 for it
        (
            made_up(SLOW_COPY, piece("learner", memory_data=0.9, learner_xla=0.1)),
            *("uneven copies", 0.6),
        ),
        # with a lag the piece whose slowest copy waits least counts; in a free run nobody waits
        (made_up(SLOW_COPY, LEARNER, lag=1), "uneven copies", 0.6),
        (made_up(SLOW_COPY, LEARNER, free=True, lag=1), "env", 0.3),
        (
            made_up(
                piece("actor", actor_weights=0.95, actor_xla=0.05),
                piece("learner", memory_data=0.97, learner_xla=0.03),
                driver=BETWEEN,
            ),
            *("callback", 0.9),
        ),
        # one program: what its stages take, timed one by one
        (made_up(FUSED), "all", 0.98),
        (made_up(FUSED, stages=APART), "gradient", 0.98 * 0.6),
        (made_up(FUSED, stages=APART, **TINY), "dispatch", 0.98),
        (made_up(FUSED, stages=APART, **TINY | {"more_rows": 3.5}), "gradient", 0.588),
        (made_up(FUSED, stages=APART, **TINY | {"one_step": 1e-2}), "gradient", 0.588),
    ],
)
def test_what_shares_mean(seen: Profile, bound: str, part: float) -> None:
    verdict = diagnose(seen)
    assert verdict.bound == bound, verdict.text
    assert verdict.part == pytest.approx(part)
    assert verdict.text.startswith(f"Bottleneck: {bound} ({part:.0%} of ")


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (made_up(FUSED), "all (98% of the time in one program)"),
        (
            made_up(
                piece("actor", 2, actor_xla=0.3, actor_weights=0.7),
                piece("learner", learner_xla=0.5, memory_data=0.5),
            ),
            "learner (50% of each round in memory+gradient+update; idle 50%)",
        ),
        (
            made_up(piece("actor", env_simulator=0.9, actor_weights=0.1), LEARNER, lag=1),
            "env (90% of actor's time; actor idle 10%)",
        ),
        (
            made_up(SLOW_COPY, LEARNER, lag=1),
            "uneven copies (60% of actor's time waiting for the slowest copy; actor idle 70%)",
        ),
        (
            made_up(piece("actor", actor_weights=1.0), LEARNER, driver=BETWEEN),
            "callback (90% of each round in hooks between rounds)",
        ),
        # close calls are named
        (
            made_up(piece("all", env_simulator=0.4, policy_xla=0.37, learner_xla=0.23)),
            "env (40% of the time; close behind: policy 37%)",
        ),
        (
            made_up(piece("all", env_simulator=0.4, policy_xla=0.35, learner_xla=0.25)),
            "env (40% of the time)",
        ),
        # inside of a program it is its stages that are compared: 0.98 * 0.42 and 0.98 * 0.4
        (
            made_up(FUSED, stages={"env": 0.18, "policy": 0.42, "gradient": 0.4}),
            "policy (41% of the time; close behind: gradient 39%)",
        ),
    ],
)
def test_how_a_bottleneck_is_named(seen: Profile, says: str) -> None:
    assert diagnose(seen).text == f"Bottleneck: {says}."


def test_nothing_that_takes_more_is_named_beside_the_bottleneck() -> None:
    """A program may take most, and none of its stages as much as one that is outside of it."""
    # of the learner's 0.6 the gradient is 0.31 and memory 0.25, less than the environment's 0.36
    learner = piece("learner", learner_xla=0.6, memory_data=0.4)
    actor = piece("actor", env_simulator=0.36, policy_weights=0.64)
    stages = {"env": 0.1, "memory": 0.25, "gradient": 0.31, "update": 0.04}
    verdict = diagnose(made_up(actor, learner, stages=stages))
    assert (verdict.bound, verdict.piece) == ("env", actor)
    assert verdict.part == pytest.approx(0.36)
    assert verdict.text == "Bottleneck: env (36% of each round; actor idle 64%)."
    # 0.6 * 0.41 / 0.7 of the time is close; with more of it the gradient is the bottleneck
    close = diagnose(made_up(actor, learner, stages=stages | {"gradient": 0.41})).text
    assert "env (36% of each" in close
    assert "close behind: gradient 35%" in close
    above = diagnose(made_up(actor, learner, stages=stages | {"gradient": 0.6}))
    assert (above.bound, above.piece) == ("gradient", learner)
    assert "env" not in above.text


def test_the_end_of_a_run_shows_the_way_to_advice() -> None:
    seen = made_up(FUSED)
    assert summary(seen, Path("runs/a b")) == (
        f"{seen.table()}\n{diagnose(seen).text}\nAdvice: rondel profile 'runs/a b'"
    )


def test_a_run_of_a_round_or_two_is_too_short_to_tell() -> None:
    short = replace(made_up(FUSED), rounds=1, seconds=0.0015, starting=1.6)
    assert summary(short, Path("runs/a")) == (
        "Too short to name a bottleneck: 0.0015 s measured, after 1.6 s of startup and "
        "compilation. Train for longer."
    )


def test_stages_of_shards_are_not_timed() -> None:
    assert can_time_stages(made_up(FUSED))
    assert not can_time_stages(made_up(FUSED, sharded=True))
    assert not can_time_stages(made_up(FUSED, stages=APART))
    assert not can_time_stages(made_up(piece("all", env_simulator=0.95, learner_xla=0.05)))


def test_the_page_on_profiling_shows_what_is_printed_now() -> None:
    page = (Path(__file__).parents[2] / "docs" / "profiling.md").read_text()
    shown = page.partition("<!-- profile -->\n```\n")[2].partition("\n```\n<!-- end of")[0]
    table, _, text = shown.partition("\n\n")
    lines = table.splitlines()
    assert lines[0] == made_up(FUSED).table().splitlines()[0]
    assert [line for line in lines[1:] if not line.startswith("  ")] == [
        *("actor, 2 copies", "learner", "driver")[: 3 if "\ndriver" in table else 2]
    ]
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert text.startswith("Bottleneck: ")
