"""What would help: each sentence where it does, and nowhere else."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from rondel.run.profiling.advice import RULES, Case, advise
from rondel.run.profiling.diagnosis import diagnose
from rondel.run.profiling.run_profile import IN_TURN, Profile
from run.made_up import APART, FUSED, made_up, moving, piece, uneven

# by its purpose a plan that the run would accept, or some of them
PLANS = {
    "more actors": "--plan ACTORS",
    "no cuts": "--plan all",
    "fewer cuts": "--plan FEWER",
    "several cores": "--plan CORES",
    "one program": "--on inline",
    "lag": "--lag 1",
    "free": "--free --lag 1",
}
IN_ENV = piece("all", env_simulator=0.9, policy_xla=0.1)
LEARNER = piece("learner", memory_data=0.8, learner_xla=0.2)
FEW = piece("actor", actor_xla=0.05, actor_weights=0.95)
MANY = piece("actor", actor_xla=0.05, actor_transport=0.05, actor_weights=0.9)
WAITING = [
    piece("actor", 2, env_simulator=0.3, policy_xla=0.2, actor_weights=0.5),
    piece("learner", learner_xla=0.35, memory_data=0.65),
]
SLOW_COPY = uneven(
    "actor",
    *[{"env_simulator": 0.1, "actor_weights": 0.9}] * 3,
    {"env_simulator": 0.9, "actor_weights": 0.1},
)
DOWN = {"restarts": 10, "lost": 0.9}
TINY = {"stages": APART, "more_rows": 1.2, "one_step": 1e-4}
POOL = {"env": "envpool-xla:Pong-v5", "lanes": 8}
HAND_OVER = piece("all", all_transport=0.6, gradient_xla=0.4)


def case_of(seen: Profile, plans: dict[str, str]) -> Case:
    return Case(seen, diagnose(seen), lambda purpose: plans.get(purpose, ""))


def advised(seen: Profile, plans: dict[str, str] = PLANS) -> str:
    return " ".join(advise(case_of(seen, plans)))


# each with a part of what is said, or what must not be
HELPS: list[tuple[Profile, str, str]] = [
    (
        made_up(piece("all", driver_callback=0.7, all_xla=0.3)),
        "Hooks block training",
        "--plan",
    ),
    (
        made_up(piece("all", driver_evaluation=0.7, all_xla=0.3)),
        *("Evaluate less often (--eval-every)", "--plan"),
    ),
    (made_up(piece("all", driver_output=0.7, all_xla=0.3)), "(--rollout) write", "--plan"),
    (made_up(*WAITING, **DOWN), "Restarts of copies: 10.", "--"),
    (
        made_up(SLOW_COPY, piece("learner", memory_data=0.9, learner_xla=0.1)),
        "actor 4 is busy 90% of the time, all copies 30% on average: its lanes or its machine are "
        "slower. Use --free --lag 1: the other copies then go on.",
        "FEWER",
    ),
    # a JAX environment behind cuts that cost much: one program, and not more copies
    (made_up(FEW, LEARNER, traced=True), "Use --plan all: one program hands", "ACTORS"),
    (made_up(MANY, LEARNER, traced=True), "Use --on inline: all copies become", "FEWER"),
    # all in one thread: copies save nothing
    (made_up(piece(IN_TURN, env_simulator=0.9), on="inline"), "--on processes: here", "ACTORS"),
    (made_up(piece(IN_TURN, policy_xla=0.9), traced=True), "Use --plan all", "processes"),
    # pieces that wait for each other
    (made_up(*WAITING), "Use --lag 1: pieces then work", "--free"),
    (made_up(*WAITING, cores=1), "", "--lag"),
    (made_up(*WAITING, free=True, lag=1), "", "--lag"),
    # handing over
    (made_up(FEW, LEARNER), "Use --plan FEWER: fewer cuts", "smaller observations"),
    (made_up(FEW, LEARNER), "Longer rounds (--rollout) hand over less often.", "all copies then"),
    (made_up(moving(MANY, 10**9), LEARNER), "Use smaller observations", "Longer rounds"),
    (made_up(HAND_OVER), "Use --on inline: all copies become one program", "Use --plan all"),
    # one program is not cut for its environments
    (made_up(FUSED, traced=True, stages={"env": 0.9, "gradient": 0.1}), "", "ACTORS"),
    (made_up(FUSED, traced=True, **TINY), "a larger --batch. This changes what is", "CORES"),
    (made_up(IN_ENV), "Use --plan ACTORS", "than cores"),
    # a round of a millisecond is no place for copies: to hand it over takes longer
    (made_up(IN_ENV, seconds=0.01), "envpool:Humanoid-v5", "ACTORS"),
    # EnvPool's lanes step in threads of their own: only other machines step more of them
    (made_up(IN_ENV, **POOL), "", "--plan"),
    (made_up(IN_ENV, on="ray", **POOL), "--plan ACTORS", "than cores"),
    (made_up(IN_ENV, **POOL | {"cores": 16}), "(--lanes): 16 cores step as many", "--plan"),
    # faster worlds
    (made_up(IN_ENV), "Use envpool:Humanoid-v5: the same environment, but faster.", "grey"),
    (made_up(IN_ENV, env="gymnasium:CartPole-v1"), "Use jax:CartPole-v1: the same", "envpool"),
    (made_up(IN_ENV, env="gymnasium:ALE/Pong-v5"), "envpool:Pong-v5, which shows 84 x 84", "jax"),
    *(
        (made_up(IN_ENV, env=env), "", "faster")
        for env in ("gymnasium:Taxi-v4", "my_module:Ant-v5", "envpool:Ant-v5")
    ),
    # a policy gets no copies: each would make as many calls
    (made_up(piece("all", policy_xla=0.9)), "More lanes (--lanes) take less time", "--plan"),
    (made_up(piece("all", policy_python=0.9)), "More lanes (--lanes) take less time", "--plan"),
    (made_up(piece("all", policy_xla=0.8), seen=800_000), "one takes 800,000 bytes", "--plan"),
    # the learner
    (made_up(piece("all", gradient_xla=0.8), passes="--updates"), "(--updates)", "batches"),
    (made_up(piece("all", gradient_xla=0.8), passes=""), "Use --plan CORES", "passes"),
    (made_up(piece("all", update_xla=0.8)), "Fewer or smaller batches", "CORES"),
    # a draw of 0.8 / 4 s is shared by cores, one of 0.8 / 4,000 s is not
    (made_up(piece("all", gradient_xla=0.8), draws=4_000), "Fewer passes", "CORES"),
    (made_up(piece("all", learner_xla=0.8)), "Use --plan CORES: several cores", "passes"),
]


@pytest.mark.parametrize(("seen", "says", "not_said"), HELPS)
def test_what_is_advised_helps(seen: Profile, says: str, not_said: str) -> None:
    text = advised(seen)
    assert says in text
    assert not_said not in text


def test_every_sentence_is_said_of_some_run() -> None:
    cases = [case_of(seen, plans) for seen, _, _ in HELPS for plans in (PLANS, {})]
    for rule in RULES:
        assert any(c.verdict.bound in rule.bounds and rule.applies(c) for c in cases), rule.sentence


def test_where_no_lag_is_allowed_fewer_pieces_are_as_fast() -> None:
    says = "Use --plan all: pieces wait for each other"
    assert says in advised(made_up(*WAITING), {"no cuts": "--plan all"})
    assert says not in advised(made_up(*WAITING, lag=1), {"no cuts": "--plan all"})


def test_beyond_the_cores_copies_help_environments_that_sleep() -> None:
    assert "Use more copies than cores (2) if a step sleeps" in advised(made_up(IN_ENV), {})
    assert "than cores" not in advised(made_up(IN_ENV, **POOL), {})


@pytest.mark.parametrize("seen", [made_up(*WAITING), made_up(IN_ENV), made_up(HAND_OVER)])
def test_plans_that_the_run_would_refuse_are_not_advised(seen: Profile) -> None:
    assert "--plan" not in advised(seen, {})


def test_where_envpool_is_not_installed_the_command_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    assert 'envpool:Humanoid-v5 (pip install "rondel[envpool]"): the' in advised(made_up(IN_ENV))


@pytest.mark.parametrize("change", [{"passes": "--epochs"}, {"seen": 2**20}])
def test_what_changes_learning_says_so(change: dict[str, Any]) -> None:
    stage = "gradient" if "passes" in change else "policy"
    said = advised(made_up(piece("all", **{f"{stage}_xla": 0.9}), **change), {})
    assert said.count("This changes what is learned.") == len(said.split(". ")) // 2
