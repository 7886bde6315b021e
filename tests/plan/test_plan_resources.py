"""What each piece needs, read from one line."""

import pytest

from rondel.errors import RondelError
from rondel.plan.parser import parse
from rondel.plan.resources import resources_for

PLAN = parse("env*4 | policy | learner")


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("", ({"cpu": 1}, {"cpu": 1}, {"cpu": 1})),
        ("policy:gpu=0.5", ({"cpu": 1}, {"cpu": 1, "gpu": 0.5}, {"cpu": 1})),
        ("env:cpu=2 learner:cpu=4,gpu=1", ({"cpu": 2}, {"cpu": 1}, {"cpu": 4, "gpu": 1})),
        (" learner : cpu = 0 ,\n gpu = 1 ", ({"cpu": 1}, {"cpu": 1}, {"cpu": 0, "gpu": 1})),
        ("update:tpu=1 memory:gpu=2", ({"cpu": 1}, {"cpu": 1}, {"cpu": 1, "tpu": 1, "gpu": 2})),
        ("memory+gradient:big-node=1", ({"cpu": 1}, {"cpu": 1}, {"cpu": 1, "big-node": 1})),
    ],
)
def test_a_piece_is_named_by_any_part_of_it(text, needs):
    assert resources_for(PLAN, text) == needs


@pytest.mark.parametrize(
    ("amount", "size"),
    [
        ("1000", 1000),
        ("500MB", 500_000_000),
        ("4GiB", 4 * 1024**3),
        ("1.5kib", 1536),
        ("2TB", 2e12),
        ("7B", 7),
    ],
)
def test_memory_is_in_bytes(amount, size):
    assert resources_for(PLAN, f"env:memory={amount}")[0]["memory"] == size


EXAMPLE = "`actor:cpu=1 learner:cpu=4,gpu=1` would work."
UNITS = "B, KB, MB, GB, TB, KiB, MiB, GiB, TiB"
WRONG = {
    "a misspelt piece": """
`env*4 | policy | learner` has no piece named 'lerner'; did you mean learner?
  env:cpu=1 lerner:gpu=1
            ^^^^^^""",
    "no such piece": """
`env*4 | policy | learner` has no piece named 'zz'; there are env, policy and learner.
  zz:gpu=1
  ^^""",
    "a piece with its copies": """
`env*4 | policy | learner` has no piece named 'env*4'; did you mean env?
  env*4:gpu=1
  ^^^^^""",
    "a piece that is cut": """
actor is no one piece of `env*4 | policy | learner`; it is in env and policy.
  actor:gpu=1
  ^^^^^""",
    "no colon": f"""
`:` is missing before 'cpu'; {EXAMPLE}
  env cpu=1
      ^^^""",
    "no piece": f"""
A piece is missing before ':'; {EXAMPLE}
  :cpu=1
  ^""",
    "no name": f"""
A resource is missing at the end; {EXAMPLE}
  env:cpu=1,
            ^""",
    "no equals": f"""
`=` is missing at the end; {EXAMPLE}
  env:cpu
         ^""",
    "no amount": f"""
An amount is missing before ','; {EXAMPLE}
  env:cpu=,gpu=1
          ^""",
    "no number": """
cpu can't be 'two'; a number, 0 or more, would work.
  env:cpu=two
          ^^^""",
    "less than nothing": """
gpu can't be '-1'; a number, 0 or more, would work.
  env:gpu=-1
          ^^""",
    "not a number": """
gpu can't be 'nan'; a number, 0 or more, would work.
  env:gpu=nan
          ^^^""",
    "without end": """
gpu can't be 'inf'; a number, 0 or more, would work.
  env:gpu=inf
          ^^^""",
    "an unclear unit": f"""
memory can't be '4G'; bytes would work, as in memory=4GiB (units: {UNITS}).
  env:memory=4G
             ^^""",
    "a number with two points": f"""
memory can't be '1.2.3GB'; bytes would work, as in memory=4GiB (units: {UNITS}).
  env:memory=1.2.3GB
             ^^^^^^^""",
    "twice": """
cpu is given twice for this piece.
  memory:cpu=1 update:cpu=2
                      ^^^""",
    "another name for one that is known": """
The resource is named gpu.
  env:GPUs=1
      ^^^^""",
}


@pytest.mark.parametrize("message", WRONG.values(), ids=WRONG)
def test_a_wrong_text_is_pointed_at(message):
    """The text is the second line of its message."""
    expected = message.removeprefix("\n")
    with pytest.raises(RondelError) as caught:
        resources_for(PLAN, expected.splitlines()[1].removeprefix("  "))
    assert str(caught.value) == expected
