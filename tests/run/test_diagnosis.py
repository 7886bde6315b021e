"""What shares mean: what bounds a run, and what would help it."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rondel.run.profiling.diagnosis import diagnose
from rondel.run.profiling.profile import can_be_measured
from rondel.run.profiling.run_profile import IN_TURN, Piece, Profile
from run.made_up import APART, FUSED, IDLE, MORE, made_up, moving, piece, uneven

IN_ENV = piece("all", env_simulator=0.9, policy_xla=0.1)
LEARNER = piece("learner", memory_data=0.8, learner_xla=0.2)
ROOMY = piece("actor", 4, actor_room=0.7, actor_xla=0.3)
WHOLE = {"traced": True, "fused": True}
BETWEEN = piece("driver", driver_callback=0.9, driver_output=0.02, driver_rounds=0.08)
GRADIENTS = {"gradients": "--plan GRADIENTS", "whole": "--plan all"}
# one actor of four is busy, and its learner for a little
SLOW_COPY = uneven(
    "actor",
    *[{"env_simulator": 0.1, "actor_weights": 0.9}] * 3,
    {"env_simulator": 0.9, "actor_weights": 0.1},
)


@pytest.mark.parametrize(
    ("seen", "bound", "part", "says"),
    [
        # one process: what takes most
        (made_up(piece("all", env_simulator=0.71, policy_xla=0.29)), "env", 0.71, "envpool:Human"),
        (made_up(IN_ENV, env="gymnasium:CartPole-v1"), "env", 0.9, "jax:CartPole-v1 is the same"),
        (
            made_up(IN_ENV, env="gymnasium:ALE/Pong-v5"),
            "env",
            0.9,
            "84 x 84 grey pixels",
        ),
        (made_up(piece("all", env_simulator=0.2, learner_xla=0.8)), "learner", 0.8, "rondel prof"),
        (made_up(piece("all", policy_python=0.6, env_simulator=0.4)), "python", 0.6, "More lanes"),
        (made_up(piece("all", driver_callback=0.7, all_xla=0.3)), "callback", 0.7, "do less in it"),
        # several: what takes most in the piece that waits least
        (
            made_up(
                piece("actor", 4, env_simulator=0.7, policy_xla=0.1, policy_weights=0.2),
                LEARNER,
                remedies=MORE,
            ),
            "env",
            0.7,
            "at once would help: --plan MORE",
        ),
        (
            made_up(ROOMY, piece("learner", learner_xla=0.9, memory_data=0.1), free=True, lag=1),
            "learner",
            0.9,
            "wait 70% of their time for room",
        ),
        # without lag pieces take turns, so what each hands over adds up, with what is on
        # its way meanwhile: 0.2 + 0.15 + (1 - 0.5 - 0.4)
        (
            made_up(
                piece("actor", actor_xla=0.3, actor_transport=0.2, actor_weights=0.5),
                piece("learner", learner_xla=0.25, learner_transport=0.15, memory_data=0.6),
                remedies={"whole": "--plan all"},
            ),
            "transport",
            0.45,
            "fewer cuts (--plan all), --on threads or longer rounds (--rollout, which changes",
        ),
        # what nobody is busy with is on its way: 1 - 0.3 - 0.2; the driver's 0.01 is its own
        (
            made_up(piece("actor", actor_weights=0.7, actor_xla=0.3), LEARNER, driver=IDLE),
            "transport",
            0.49,
            "longer rounds",
        ),
        # of that, 0.4 went by while someone who had died was started again
        (
            made_up(
                piece("actor", actor_weights=0.7, actor_xla=0.3),
                LEARNER,
                **{"driver": IDLE, "restarts": 10, "lost": 0.4},
            ),
            "restarts",
            0.4,
            "Copies were started again 10 times in all; why was said",
        ),
        # in a free run the others go on meanwhile
        (
            made_up(ROOMY, LEARNER, **{"free": True, "lag": 1, "restarts": 10, "lost": 0.9}),
            "actor",
            0.3,
            "for room",
        ),
        # a network can't be small enough for observations that are large
        (
            made_up(piece("all", policy_xla=0.8, env_simulator=0.2), seen=800_000),
            "policy",
            0.8,
            "An observation takes 781.2 KiB, and to read it is much of this: smaller ones",
        ),
        (
            made_up(piece("all", gradient_xla=0.8), passes="--updates"),
            "gradient",
            0.8,
            "(--updates)",
        ),
        # eight that sleep, of eight lanes
        (
            made_up(piece("actor", 8, 0.1, env_simulator=0.9, env_weights=0.1), LEARNER),
            "env",
            0.9,
            "Each lane has a copy of its own: more lanes (--lanes) in more copies",
        ),
        # nobody is busy for long, and there is no lag to be had
        (
            made_up(
                piece("actor", 2, env_simulator=0.3, policy_xla=0.2, actor_weights=0.5),
                piece("learner", learner_xla=0.35, memory_data=0.65),
                remedies={"whole": "--plan all"},
            ),
            "learner",
            0.35,
            "learns from nothing older: in one piece (--plan all) it may be as quick",
        ),
        # the others wait 0.9 - (3 * 0.1 + 0.9) / 4 for it
        (
            made_up(SLOW_COPY, piece("learner", memory_data=0.9, learner_xla=0.1)),
            "uneven copies",
            0.6,
            "actor 4 is busy 90% of it, the others 10%",
        ),
        # with a lag the piece whose slowest copy waits least counts; in a free run nobody waits
        (made_up(SLOW_COPY, LEARNER, lag=1), "uneven copies", 0.6, "actor 4 is busy"),
        (made_up(SLOW_COPY, LEARNER, free=True, lag=1), "env", 0.3, "threads in C++"),
        (
            made_up(
                piece("actor", actor_weights=0.95, actor_xla=0.05),
                piece("learner", memory_data=0.97, learner_xla=0.03),
                driver=BETWEEN,
            ),
            "callback",
            0.9,
            "nothing else goes on",
        ),
        (
            made_up(
                piece("actor", actor_weights=0.5, actor_xla=0.5),
                piece("learner", memory_data=0.55, learner_xla=0.45),
                remedies={"lag": "--lag 1"},
            ),
            "actor",
            0.5,
            "--lag 1 lets them work at the same time, with weights that are a round old, which",
        ),
        # one program: what its stages take apart
        (made_up(FUSED, **WHOLE), "all", 0.98, "`rondel profile FOLDER` runs its"),
        # to compile takes 4 * 2 s, to time a round of 1 s 8 s, and one of 4 s 10 s and 3 rounds
        (made_up(FUSED, **WHOLE), "all", 0.98, "apart for about 38 s, and says"),
        (made_up(FUSED, apart=APART, **WHOLE), "gradient", 0.98 * 0.6, "changes what is learned"),
        (
            made_up(FUSED, apart=APART, more_rows=1.2, one_step=1e-4, **WHOLE),
            "dispatch",
            0.98,
            "(--lanes) cost little",
        ),
        (
            made_up(FUSED, apart=APART, more_rows=1.2, one_step=1e-4, batched=True, **WHOLE),
            "dispatch",
            0.98,
            "(--lanes, --batch)",
        ),
        (
            made_up(FUSED, apart=APART, more_rows=3.5, one_step=1e-4, **WHOLE),
            "gradient",
            0.588,
            "Fewer passes",
        ),
        (
            made_up(FUSED, apart=APART, more_rows=1.2, one_step=1e-2, **WHOLE),
            "gradient",
            0.588,
            "Fewer passes",
        ),
    ],
)
def test_what_shares_mean(seen: Profile, bound: str, part: float, says: str) -> None:
    verdict = diagnose(seen)
    assert verdict.bound == bound, verdict.text
    assert verdict.part == pytest.approx(part)
    verb = "bound" if bound in ("uneven copies", "restarts") else "bounds"
    assert verdict.text.startswith(f"{bound} {verb} this run")
    assert says in verdict.text
    assert f"{part:.0%}" in verdict.text


GRADIENT = piece("gradient", gradient_xla=0.9, gradient_data=0.1)
FEW = piece("actor", actor_xla=0.05, actor_weights=0.95)
MANY = piece("actor", actor_xla=0.05, actor_transport=0.05, actor_weights=0.9)
SLEEPING = piece("all", computed=0.1, env_simulator=0.9, policy_xla=0.1)
POOL = {"env": "envpool-xla:Pong-v5", "lanes": 8}
STEPPING = {"env": 0.9, "gradient": 0.1}
COPIES = piece("actor", 2, env_simulator=0.9, actor_weights=0.1)
INLINE = {"devices": "--on inline", "whole": "--plan all"}


@pytest.mark.parametrize(
    ("seen", "says", "not_said"),
    [
        # one program is not cut, whatever stage it is
        (made_up(FUSED, apart=APART, remedies=MORE | GRADIENTS, **WHOLE), "Fewer", "--plan"),
        # nor is a policy given copies: each would make as many calls
        (
            made_up(piece("all", policy_xla=0.9, env_simulator=0.1), remedies=MORE),
            "lanes",
            "--plan",
        ),
        # copies that compute: as many as there are cores; those that sleep may be more
        (made_up(IN_ENV, remedies=MORE), "--plan MORE", "MANY"),
        (made_up(SLEEPING, remedies=MORE), "--plan MANY", "MORE"),
        # EnvPool's lanes step in threads of their own: copies of them would not step sooner
        (made_up(SLEEPING, remedies=MORE, **POOL), "use more cores", "--plan"),
        (made_up(FUSED, apart=STEPPING, **POOL, **WHOLE), "other machines (--on ray)", "accelera"),
        (made_up(IN_ENV, **POOL | {"cores": 16}), "there are 16 cores: more lanes", "use more"),
        (made_up(IN_ENV, remedies=MORE, on="ray", **POOL), "machines: --plan MORE", "use more"),
        (made_up(COPIES, LEARNER), "a copy for each core (2)", "--plan"),
        # a round of a millisecond is no place for copies: to hand it over takes longer
        (made_up(IN_ENV, remedies=MORE, seconds=0.01), "envpool:", "--plan"),
        # a draw of 0.9 / 4 s is, one of 0.9 / 400 s is not
        (made_up(FEW, GRADIENT, remedies=GRADIENTS), "--plan GRADIENTS", "--plan all"),
        (made_up(FEW, GRADIENT, remedies=GRADIENTS, draws=400), "Fewer", "--plan GRADIENTS"),
        # a JAX environment behind cuts that cost much: in one piece, not more of them
        (
            made_up(FEW, LEARNER, remedies=GRADIENTS, traced=True),
            "in one piece (--plan all)",
            "threads",
        ),
        (
            made_up(
                FEW,
                piece("gradient", gradient_xla=0.5, gradient_transport=0.1, gradient_data=0.4),
                remedies=GRADIENTS,
                traced=True,
                lag=1,
            ),
            "The cuts cost 50% of the time",
            "GRADIENTS",
        ),
        # all in one thread: copies save nothing
        (
            made_up(piece(IN_TURN, env_simulator=0.9, policy_xla=0.1), remedies=MORE, on="inline"),
            "share this thread",
            "--plan",
        ),
        # it is on threads already
        (made_up(FEW, LEARNER, on="threads"), "longer rounds", "--on threads"),
        (made_up(moving(MANY, 10**9), LEARNER), "smaller observations", "longer rounds"),
        # copies that could be one program: on this machine nothing else is as quick
        (
            made_up(moving(MANY, 10**9), LEARNER, remedies=INLINE),
            "--on inline (one program of all copies, on as many cores) or fewer cuts (--plan all)",
            "observations",
        ),
        (
            made_up(MANY, LEARNER, remedies=INLINE, traced=True),
            "nobody waits; --on inline makes one program of the copies, on as many cores.",
            "would help",
        ),
        (
            made_up(SLOW_COPY, LEARNER, remedies={"free": "--free --lag 1"}),
            "--free --lag 1 lets the others go on",
            "fewer cuts",
        ),
    ],
)
def test_what_is_advised_helps(seen: Profile, says: str, not_said: str) -> None:
    text = diagnose(seen).text
    assert says in text
    assert not_said not in text


def test_what_takes_as_much_is_named_too() -> None:
    close = made_up(piece("all", env_simulator=0.4, policy_xla=0.37, learner_xla=0.23))
    assert "it takes 40% of the time; policy takes about as much (37%). " in diagnose(close).text
    clear = made_up(piece("all", env_simulator=0.4, policy_xla=0.35, learner_xla=0.25))
    assert "about as much" not in diagnose(clear).text
    # inside of a program it is its stages that are compared: 0.98 * 0.42 and 0.98 * 0.4
    stages = {"env": 0.18, "policy": 0.42, "gradient": 0.4}
    inside = diagnose(made_up(FUSED, apart=stages, **WHOLE)).text
    assert "policy bounds this run: it takes 41% of the time; gradient takes about as mu" in inside


def test_nothing_that_takes_more_is_named_beside_what_bounds() -> None:
    """A program may take most, and none of its stages as much as one that is outside of it."""
    # of the learner's 0.6 the gradient is 0.31 and memory 0.25, less than the environment's 0.36
    learner = piece("learner", learner_xla=0.6, memory_data=0.4)
    actor = piece("actor", env_simulator=0.36, policy_weights=0.64)
    apart = {"env": 0.1, "memory": 0.25, "gradient": 0.31, "update": 0.04}
    verdict = diagnose(made_up(actor, learner, apart=apart))
    assert (verdict.bound, verdict.piece) == ("env", "actor")
    assert verdict.part == pytest.approx(0.36)
    assert "it takes 36% of each round, in which actor waits for others 64%. " in verdict.text
    # 0.6 * 0.41 / 0.7 of the time is close; with more of it the gradient bounds
    close = diagnose(made_up(actor, learner, apart=apart | {"gradient": 0.41})).text
    assert "env bounds this run: it takes 36% of each" in close
    assert "gradient takes about as much (35%)" in close
    above = diagnose(made_up(actor, learner, apart=apart | {"gradient": 0.6}))
    assert (above.bound, above.piece) == ("gradient", "learner")
    assert "env takes" not in above.text


@pytest.mark.parametrize(
    ("part", "says"),
    [(0.25, "Handing over takes no more than half of"), (0.6, "costs more than what is")],
)
def test_what_is_handed_over_is_said_to_cost_more_only_where_it_does(part: float, says: str):
    rest = (1.0 - part) / 4  # of each of four stages
    stages = {f"{name}_xla": rest for name in ("policy", "memory", "gradient", "update")}
    text = diagnose(made_up(piece("all", all_transport=part, **stages), on="threads")).text
    assert text.startswith("transport bounds this run")
    assert says in text


@pytest.mark.parametrize("env", ["gymnasium:Taxi-v4", "my_module:Ant-v5", "envpool:Ant-v5"])
def test_what_envpool_has_not_is_not_looked_for_there(env: str) -> None:
    assert "is the same environment" not in diagnose(made_up(IN_ENV, env=env)).text


def test_where_envpool_is_not_installed_it_is_said_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    text = diagnose(made_up(IN_ENV)).text
    assert text.endswith('stepped by threads in C++ (pip install "rondel[envpool]").')


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
    words = " ".join(text.split())
    assert re.match(
        r"[\w ]+ bounds? this run: [\w, ]+ \d+% of each round, in which \w+ waits", words
    )


def test_a_run_of_a_round_or_two_is_too_short_to_tell():
    short = replace(made_up(IN_ENV), rounds=1, seconds=0.0015, starting=1.6)
    said = diagnose(short).text
    assert said == (
        "What bounds this run can't be told of 0.0015 s after 1.6 s of starting and compiling: a "
        "longer one would show it."
    )


@pytest.mark.parametrize(("draws", "said"), [(4, True), (2_000, False)])
def test_other_cores_are_offered_where_a_draw_is_long(draws: int, said: bool) -> None:
    cores = {"cores": "--plan CORES"}
    inside = made_up(FUSED, apart=APART, fused=True, remedies=cores, draws=draws)
    # a round takes 1 s, of which a draw's gradient is 0.6 / 4 or 0.6 / 2,000
    assert ("one of 2 cores: --plan CORES shares" in diagnose(inside).text) is said
    learner = piece("all", learner_xla=0.9, env_simulator=0.1)
    assert ("--plan CORES" in diagnose(made_up(learner, remedies=cores, draws=draws)).text) is said
    bound = piece("all", learner_xla=0.1, env_simulator=0.9)
    assert "--plan CORES" not in diagnose(made_up(bound, remedies=cores, draws=draws)).text


@pytest.mark.parametrize(
    ("pieces", "rounds", "takes"),
    [
        # 0.1 s a round: 4 * 5 to compile, 8 * 0.1 to time, then with 4 * 0.1 a round
        ((FUSED,), 100, 4 * 5 + 0.8 + 3.2),
        # 10 s a round: bounds of 10 s, and three rounds of 10 and of 40 s
        ((FUSED,), 1, 4 * 5 + (10 + 30) + (10 + 120)),
        # what is cut is not timed with more rows; two copies' rounds are done here by one
        (
            (
                piece("actor", 2, actor_xla=0.5, policy_weights=0.5),
                piece("learner", learner_xla=1.0),
            ),
            *(100, 5 + 8 * 0.1 * (2 * 0.5 + 1.0)),
        ),
    ],
)
def test_how_long_it_takes_to_measure_apart(
    pieces: tuple[Piece, ...], rounds: int, takes: float
) -> None:
    seen = made_up(*pieces, rounds=rounds, seconds=10.0, starting=60.0, compiling=5.0)
    assert seen.apart_takes == pytest.approx(takes)


def test_nobody_is_sent_to_measure_what_can_not_be_measured() -> None:
    assert "rondel profile" in diagnose(made_up(FUSED, plan="all", fused=True)).text
    assert "rondel profile" not in diagnose(made_up(FUSED, plan="all*2", fused=True)).text
    assert not can_be_measured(made_up(FUSED, plan="all*2", fused=True))


@pytest.mark.parametrize("more", [{"lag": 1}, {"lag": 2, "free": True}])
def test_who_learns_from_what_is_older_is_not_told_otherwise(more: dict[str, Any]) -> None:
    actor = piece("actor", 2, env_simulator=0.3, policy_xla=0.2, actor_weights=0.5)
    learner = piece("learner", learner_xla=0.35, memory_data=0.65)
    seen = made_up(actor, learner, remedies={"whole": "--plan all"}, **more)
    assert "nothing older" not in diagnose(seen).text
