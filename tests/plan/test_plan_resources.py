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


EXAMPLE = "An example: `actor:cpu=1 learner:cpu=4,gpu=1`."
UNITS = "B, KB, MB, GB, TB, KiB, MiB, GiB, TiB"
WRONG = {
    "a misspelt piece": """
`env*4 | policy | learner` has no piece 'lerner'. Did you mean learner?
  env:cpu=1 lerner:gpu=1
            ^^^^^^""",
    "no such piece": """
`env*4 | policy | learner` has no piece 'zz'. Its pieces: env, policy, learner.
  zz:gpu=1
  ^^""",
    "a piece with its copies": """
`env*4 | policy | learner` has no piece 'env*4'. Did you mean env?
  env*4:gpu=1
  ^^^^^""",
    "a piece that is cut": """
`env*4 | policy | learner` has actor in several pieces: env and policy.
  actor:gpu=1
  ^^^^^""",
    "no colon": f"""
`:` is missing before 'cpu'. {EXAMPLE}
  env cpu=1
      ^^^""",
    "no piece": f"""
A piece is missing before ':'. {EXAMPLE}
  :cpu=1
  ^""",
    "no name": f"""
A resource is missing at the end. {EXAMPLE}
  env:cpu=1,
            ^""",
    "no equals": f"""
`=` is missing at the end. {EXAMPLE}
  env:cpu
         ^""",
    "no amount": f"""
An amount is missing before ','. {EXAMPLE}
  env:cpu=,gpu=1
          ^""",
    "no number": """
cpu must be a number, 0 or more, got 'two'.
  env:cpu=two
          ^^^""",
    "less than nothing": """
gpu must be a number, 0 or more, got '-1'.
  env:gpu=-1
          ^^""",
    "not a number": """
gpu must be a number, 0 or more, got 'nan'.
  env:gpu=nan
          ^^^""",
    "without end": """
gpu must be a number, 0 or more, got 'inf'.
  env:gpu=inf
          ^^^""",
    "an unclear unit": f"""
memory must be bytes, as in memory=4GiB (units: {UNITS}), got '4G'.
  env:memory=4G
             ^^""",
    "a number with two points": f"""
memory must be bytes, as in memory=4GiB (units: {UNITS}), got '1.2.3GB'.
  env:memory=1.2.3GB
             ^^^^^^^""",
    "twice": """
cpu is given twice for this piece.
  memory:cpu=1 update:cpu=2
                      ^^^""",
    "another name for one that is known": """
Unknown resource 'GPUs'. Did you mean gpu?
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
