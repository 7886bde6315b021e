"""What `explain` says: by hand, against what a run really hands over, and without running."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

import rondel
from marks import few_of
from rondel.execution.backends import inline
from rondel.execution.requests import Request
from rondel.execution.stages.task import bytes_of
from rondel.execution.workers.jax_envs import JaxEnvs
from rondel.plan.parser import parse
from rondel.run.preflight.explain import Explanation
from rondel.run.preflight.explanation import Message

# CartPole observes 4 numbers and has 2 actions, so with 8 hidden units a network is
# 4 * 8 + 8 + 8 * 2 + 2 = 58 numbers, 232 bytes.
DQN: dict[str, Any] = {
    "lanes": 16,
    "rollout": 4,
    "updates": 3,
    "batch": 16,
    "capacity": 500,
    "warmup": 0,
    "hidden": (8,),
    "tuned": False,
}


def dqn(plan: Any, env: Any = "CartPole-v1", **fields: Any) -> Explanation:
    return rondel.explain("dqn", env, plan=plan, **DQN | fields)


def by_name(facts: Explanation) -> dict[str, Message]:
    return {one.what: one for one in facts.messages}


def ways(facts: Explanation) -> list[str]:
    """What crosses a cut; what goes to the driver does not."""
    each = [one for one in facts.messages if one.taker != "driver"]
    return [f"{one.maker} {one.what} {one.taker} x{one.messages}" for one in each]


# By hand.


def test_every_cut_in_bytes() -> None:
    facts = dqn("env*2 | policy | memory | gradient | update")
    told = {k: (h.message_bytes, h.messages, h.round_bytes) for k, h in by_name(facts).items()}
    assert told == {
        # 16 lanes in two halves of two env copies: groups of 4. A lane's step is 16 bytes of
        # observation, reward 4, three flags, return 4, length 4: 31. 4 groups * 4 steps.
        "step": (4 * 31, 16, 1984),
        "action": (4 * 4, 16, 256),
        # a lane: 4 + 1 observations of 16; five arrays of 4 numbers of 4; 4 flags: 164
        "items": (16 * 164, 1, 2624),
        "summary": (16 * 4, 1, 64),  # a count for each lane
        # a row: two observations of 16; action, reward, discount, ratio of 4; a flag: 49
        "batch": (16 * 49, 3, 2352),
        "feedback": (16 * 4, 3, 192),
        "variables": (2 * 232 + 4, 3, 1404),  # parameters, target, importance exponent
        "contribution": (232 + 4 + 4 * 4, 3, 756),  # gradients, weight, four metrics
        "weights": (232 + 4, 1, 236),  # parameters, epsilon
        "outcome": (16 * 4 * 10, 1, 640),  # two flags, return and length of every step
        "metrics": (4 * 4, 3, 48),
    }
    step = {leaf.name: (leaf.dtype, leaf.shape) for leaf in by_name(facts)["step"].leaves}
    assert step["obs"] == ("float32", (4, 4))
    assert step["episode_length"] == ("int32", (4,))


def test_what_copies_hold_and_share() -> None:
    env, policy, memory, gradient = dqn("env*2 | policy | memory*2 | gradient+update").pieces
    # the first half of the lanes is 0-7, and each env copy has half of each half
    assert [share.lanes for share in env.shares] == [((0, 3), (8, 11)), ((4, 7), (12, 15))]
    assert [share.name for share in env.shares] == ["env 1 of 2", "env 2 of 2"]
    # a lane: 4 numbers of physics, a key of two words, length and return of 4, a flag: 33
    assert env.holds == {"env": 8 * 33}
    # no carry, no overlap: only the last step, 31 bytes a lane
    assert (policy.holds, policy.shares[0].lanes) == ({"policy": 16 * 31}, ((0, 15),))
    # 8 lanes of a shard keep 250 transitions in whole rounds of 32: 8 rounds, 32 rows a lane,
    # 33 of them as observations of 16, four numbers of 4 and a flag in each of 32: 1072 a lane;
    # 16 bytes a lane at the edge; two counters; a slot of 4 for each of 8 rows of a draw
    assert memory.holds == {"memory": 8 * (1072 + 16) + 8 + 8 * 4}
    assert [share.lanes for share in memory.shares] == [((0, 7),), ((8, 15),)]
    assert [share.rows for share in memory.shares] == [(0, 7), (8, 15)]
    assert [share.rows for share in gradient.shares] == [(0, 15)]
    # parameters, target and Adam's two moments of 58 numbers; three counters of 4
    assert gradient.holds == {"update": 4 * 232 + 3 * 4}


@pytest.mark.parametrize(
    ("plan", "crosses"),
    [
        ("all", []),
        ("env | policy+learner", ["env step policy x8", "policy action env x8"]),
        (
            "actor*2 | learner",
            ["policy items memory x2", "policy summary update x2", "update weights policy x2"],
        ),
        (
            "actor | memory*2 | gradient+update",  # one actor's items go to both shards
            [
                "policy items memory x2",
                "policy summary update x1",
                "memory batch gradient x6",
                "gradient feedback memory x6",
                "update weights policy x1",
            ],
        ),
        (
            "actor+memory+gradient*2 | update",
            [
                "policy summary update x2",
                "update variables gradient x6",
                "gradient contribution update x6",
                "update weights policy x2",
            ],
        ),
        (
            "actor*2 | learner*2",  # each learner hears of both actors, and of the other learner
            [
                "policy items memory x2",
                "policy summary update x4",
                "gradient contribution update x6",
                "update weights policy x2",
            ],
        ),
        (
            "all*2",
            [
                "policy summary update x2",
                "gradient contribution update x6",
                "update weights policy x1",
            ],
        ),
    ],
)
def test_only_what_crosses_a_cut_is_listed(plan: str, crosses: list[str]) -> None:
    assert ways(dqn(plan)) == crosses


def test_a_free_round_of_one_copy_hands_over_its_own_part() -> None:
    facts = dqn("actor+memory+gradient*2 | update", lag=1, free=True)
    assert ways(facts) == [
        "policy summary update x1",
        "update variables gradient x3",
        "gradient contribution update x3",
        "update weights policy x1",
    ]
    assert (
        "at most 3 versions old. Each round of a copy makes a version" in facts.lag_rule
    )  # 2 * (1 + 1) - 1
    assert [share.rows for share in facts.pieces[0].shares] == [(0, 7), (0, 7)]


# Against what really happens.

RESULTS = {
    "produce": ("items", "summary", "outcome"),
    "draw": ("batch",),
    "label": ("labelled",),
    "gradient": ("feedback", "contribution"),
    "learning": ("variables",),
    "acting": ("weights",),
}


class Watch:
    """Counts what copies get that another copy made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: dict[str, list[int]] = defaultdict(list)  # bytes of each message
        self._made: dict[int, tuple[Any, Any, str]] = {}  # the values too, so that ids last
        watch, send, step = self, inline.InlineProxy.send, JaxEnvs.step

        def watched_send(copy: Any, request: Request, *args: Any) -> Any:
            for arg in args:
                value, maker, what = watch._made.get(id(arg), (None, copy, ""))
                if maker is not copy:
                    watch.seen[what].append(bytes_of(value))
            results = send(copy, request, *args)
            names = RESULTS.get(request.name, ())
            for name, value in zip(names, results if len(names) > 1 else [results], strict=False):
                if value is not None:
                    watch._made[id(value)] = (value, copy, name)
            return results

        def watched_step(lanes: Any, first_lane: int, action: Any) -> Any:
            answer = step(lanes, first_lane, action)
            watch.seen["action"].append(bytes_of(action))
            watch.seen["step"].append(bytes_of(answer))
            return answer

        monkeypatch.setattr(inline.InlineProxy, "send", watched_send)
        monkeypatch.setattr(JaxEnvs, "step", watched_step)


HANDED = [
    ("env*4 | policy*2 | memory | gradient*2 | update", "CartPole-v1"),
    ("actor | memory*2 | gradient+update", "CartPole-v1"),
    ("actor*2 | learner*2", "CartPole-v1"),
    ("all*2", "gymnasium:CartPole-v1"),
]


@pytest.mark.parametrize(("plan", "env"), few_of(HANDED, HANDED[:1]))
def test_a_round_hands_over_just_that(plan: str, env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = dqn(plan, env, on="inline")
    assert "driver" not in {one.taker for one in facts.messages}
    watch = Watch(monkeypatch)
    with rondel.start("dqn", env, plan=plan, on="inline", steps=1, **DQN) as run:
        next(iter(run))
    said = {what: [one.message_bytes] * one.messages for what, one in by_name(facts).items()}
    assert said == watch.seen


# In words.


@pytest.mark.parametrize(
    ("plan", "fields", "lag", "numbers"),
    [
        ("actor*2 | learner", {}, "0: each round acts with the newest weights", "those of `all`"),
        (
            "actor*2 | learner",
            {"lag": 2},
            "2: a fixed delay. Round r acts with the weights of version max(0, r - 2), so acting "
            "is 2 rounds ahead",
            "those of `all --lag 2`",
        ),
        (
            "actor*2 | learner",
            {"lag": 1, "free": True},
            "free: weights are at most 1 round old. The learner takes the 2 oldest parts that "
            "arrived, or waits if another would become too old",
            "not deterministic",
        ),
        ("learner", {"plan": "actor | learner*2"}, "0:", "but not those of `all`: memory draws fr"),
        ("", {"plan": "actor | memory | gradient*2 | update"}, "0:", "gradients are the mean of 2"),
    ],
)
def test_lag_and_numbers_in_words(
    plan: str, fields: dict[str, Any], lag: str, numbers: str
) -> None:
    facts = rondel.explain("dqn", "CartPole-v1", **DQN | {"plan": plan} | fields)
    assert lag in facts.lag_rule
    assert numbers in facts.numbers
    assert facts.deterministic == (not facts.free)
    assert facts.same_as_all == ("those of `all" in facts.numbers and "not" not in facts.numbers)


@pytest.mark.parametrize(
    ("plan", "env", "runs"),
    [
        ("all", "CartPole-v1", ["the whole ring: one program, many rounds per call"]),
        (
            "all",
            "gymnasium:CartPole-v1",
            [
                "env+policy: a Python loop of 4 steps around a program that acts in blocks of 8 "
                "lanes",
                "memory+gradient+update: one program for all 3 draws of a round",
            ],
        ),
        (
            "actor*2 | memory | gradient+update",
            "CartPole-v1",
            [
                "env+policy: one program of 4 steps, one scan per block of 8 lanes",
                "memory: draw, rank, a program each, 3 times a round",
                "gradient+update: gradient of a batch, optimiser step, a program each, 3 "
                "times a round",
            ],
        ),
        (
            "env*2 | policy+learner",
            "gymnasium:CartPole-v1",
            [
                "env: Python environments, in 2 groups of lanes, double-buffered: one half steps "
                "while the policy acts for the other",
                "policy: a Python loop of 4 steps around a program that acts in blocks of 8 lanes, "
                "for one half of its lanes at a time",
                "memory+gradient+update: one program for all 3 draws of a round",
            ],
        ),
    ],
)
def test_what_is_fused(plan: str, env: str, runs: list[str]) -> None:
    assert [run for piece in dqn(plan, env).pieces for run in piece.runs] == runs


def test_what_is_asked_of_the_machine() -> None:
    assert [f.needs for f in dqn("actor*2 | learner", on="threads").pieces] == 2 * [{"thread": 1}]
    here = dqn("actor*2 | learner")
    assert (here.on, here.copies, here.processes) == ("processes", 3, 4)
    assert "processes: 4, the driver and one for each of 3 copies" in str(here)
    ray = dqn("actor*2 | learner", on="ray", resources="learner:cpu=2,gpu=1,memory=1GiB")
    assert [f.needs for f in ray.pieces] == [{"cpu": 1}, {"cpu": 2, "gpu": 1, "memory": 2**30}]
    assert "needs 4 cpu, 1 gpu, 1.0 GiB of memory" in " ".join(str(ray).split())
    ranged = " ".join(str(dqn("actor*1..2 | learner", on="ray", free=True, lag=1)).split())
    assert "each of up to 3 copies" in ranged
    assert "needs at least 2 cpu and at most 3 cpu" in ranged
    assert "actor, 1 to 2 copies" in ranged
    with pytest.raises(rondel.RondelError, match="with --free, or a number of copies"):
        dqn("actor*auto | learner", on="ray")
    with pytest.raises(rondel.RondelError, match="with --free, or a number of copies"):
        dqn("env | policy*auto | learner", on="ray", free=True, lag=1)


@pytest.mark.parametrize(
    "plan", ["all", "all*2", "apex", "gorila", "a3c", "sebulba", "env*2 | policy+learner", "impala"]
)
def test_the_text_fits_a_terminal(plan: str) -> None:
    text = str(rondel.explain("dqn", "CartPole-v1", plan=plan, lanes=32))
    assert max(map(len, text.splitlines())) <= 80
    assert "\n\n\n" not in text
    assert text.replace("\n", "").isprintable()


def test_the_page() -> None:
    assert f"{dqn('actor*2 | learner', lag=1)}\n" == PAGE


PAGE = """\
dqn on jax:CartPole-v1, 16 lanes in blocks of 8

plan      actor*2 | learner
on        processes: 4, the driver and one for each of 3 copies
lag       1: a fixed delay. Round r acts with the weights of version max(0,
          r - 1), so acting is 1 round ahead of the learner
numbers   deterministic and the same on every backend: those of `all --lag 1`
round     4 steps per lane, then 3 draws of 16 rows

actor, 2 copies: env+policy
  runs    env+policy: one program of 4 steps, one scan per block of 8 lanes
  lanes   0-7 | 8-15
  holds   env 264 bytes, policy 248 bytes per copy
  needs   1 process per copy

learner: memory+gradient+update
  runs    memory+gradient+update: one program for all 3 draws of a round
  lanes   0-15
  rows    0-15 of each batch
  holds   memory 17.1 KiB, update 940 bytes
  needs   1 process

messages of a round                                 size    number       total
  policy -> memory      items                    1.3 KiB         2     2.6 KiB
      obs float32[8, 5, 4], action int32[8, 4], reward float32[8, 4],
      discount float32[8, 4], offset int32[8, 4], valid bool[8, 4],
      priority float32[8, 4]
  policy -> update      summary                 32 bytes         2    64 bytes
      int32[8]
  update -> policy      weights                236 bytes         2   472 bytes
      params/0/b float32[8], params/0/w float32[4, 8], params/1/b float32[2],
      params/1/w float32[8, 2], epsilon float32[]
  policy -> driver      outcome                320 bytes         2   640 bytes
      done bool[8, 4], episode_return float32[8, 4], episode_length int32[8, 4],
      valid bool[8, 4]
  update -> driver      metrics                 16 bytes         1    16 bytes
      grad_norm float32[], loss/q float32[], q float32[], td_error float32[]
  total                                                          9     3.7 KiB
"""


def test_a_plan_can_be_given_as_a_value() -> None:
    plan = parse("actor*2 | learner", lag=1)
    assert dqn(plan) == dqn("actor*2 | learner", lag=1)
    assert dqn(rondel.Plan(plan.pieces), lag=2).lag == 2


# What can't run is refused, by train too.
