"""The errors of illegal plans, and the places they point at."""

import pytest

from rondel.errors import RondelError
from rondel.plan.parser import parse
from rondel.plan.pieces import STAGES, Piece
from rondel.plan.plan import Plan
from rondel.plan.presets import PRESETS

ACTOR, LEARNER = STAGES[:2], STAGES[2:]
NAMES = "env, policy, memory, label, gradient, update, all, learner"


WRONG = {
    "unknown, near": """
Unknown stage 'lerner'. Did you mean learner?
  actor*3 | lerner
            ^^^^^^""",
    "unknown, far": f"""
Unknown stage 'zzz'. Use {NAMES} or actor.
  zzz | learner
  ^^^""",
    "a word alone may be a preset": """
Unknown stage or plan 'imapla'. Did you mean impala?
  imapla*8
  ^^^^^^""",
    "a capital": """
Unknown stage 'Actor'. Did you mean actor?
  Actor | learner
  ^^^^^""",
    "a preset within": """
impala is a whole plan, `actor*4 | learner`, and not a piece of one.
  impala*8 | learner
  ^^^^^^""",
    "missing at the end": """
memory, gradient and update are missing at the end. Did you mean `actor*4 | learner`?
  actor*4
          ^""",
    "missing within": """
memory is missing before gradient. Did you mean `actor*4 | learner`?
  actor*4 | gradient+update
            ^^^^^^^^""",
    "missing at the start": """
env and policy are missing before memory. Did you mean `all`?
  learner
  ^^^^^^^""",
    "missing, and more is wrong": """
policy is missing before memory.
  env*2 | memory*3 | gradient+update
          ^^^^^^""",
    "doubled": """
policy is repeated. Did you mean `actor | learner`?
  actor + policy | learner
          ^^^^^^""",
    "pieces in the wrong order": """
memory is before env, but the order is env, policy, memory, gradient, update. Did you mean \
`actor*2 | learner`?
  learner | actor*2
  ^^^^^^^""",
    "stages in the wrong order": """
memory is before policy, but the order is env, policy, memory, gradient, update. Did you mean `env \
| policy | memory | gradient+update`?
  env+memory | policy+gradient+update
      ^^^^^^""",
    "no copy": """
Copies of actor must be an integer, 1 or more, got 0.
  actor*0 | learner
       ^^""",
    "less than no copy": """
Copies of actor must be an integer, 1 or more, got -1.
  actor*-1 | learner
       ^^^""",
    "half a copy": """
Copies must be an integer, 1 or more, a range (`4..16`) or `auto`, got '2.5'.
  actor*2.5 | learner
        ^^^""",
    "a range that falls": """
A range of copies must ascend from 1 or more, got 16..4.
  actor*16..4 | learner
       ^^^^^^""",
    "a range of learners": """
learner needs a fixed number of copies. Only pieces that act take a range: `actor*4..16 | learner`.
  actor | learner*auto
                 ^^^^^""",
    "a range of a plan whose copies learn": """
ddppo is `all*2`. all needs a fixed number of copies. Only pieces that act take a range: \
`actor*4..16 | learner`.
  ddppo*auto
       ^^^^^""",
    "missing, with a range": """
memory is missing before gradient. Did you mean `actor*1..4 | learner`?
  actor*1..4 | gradient+update
               ^^^^^^^^""",
    "copies of nothing": f"""
A stage is missing before `*`. Use {NAMES} or actor.
  *4 | learner
  ^""",
    "copies without a number": """
`*` needs a number of copies: `*4`.
  actor* | learner
       ^""",
    "copies of copies": """
Unexpected `*`: `+` joins stages, `|` cuts, `*4` makes copies.
  actor*4*2 | learner
         ^""",
    "copies in front": """
The number of copies comes after the piece: `actor*4`.
  4*actor | learner
  ^""",
    "copies within a piece": """
Unexpected `+`: `+` joins stages, `|` cuts, `*4` makes copies.
  actor*4+memory | gradient+update
         ^""",
    "neither joined nor cut": """
Unexpected `learner`: `+` joins stages, `|` cuts, `*4` makes copies.
  actor learner
        ^^^^^^^""",
    "not cut": """
Unexpected `learner`: `+` joins stages, `|` cuts, `*4` makes copies.
  actor*4 learner
          ^^^^^^^""",
    "joined twice": f"""
A stage is missing before `+`. Use {NAMES} or actor.
  actor ++ learner
         ^""",
    "cut at the end": f"""
A stage is missing at the end. Use {NAMES} or actor.
  actor |
         ^""",
    "cut twice": f"""
A stage is missing before `|`. Use {NAMES} or actor.
  actor || learner
         ^""",
    "another sign between": """
Unexpected `&`: `+` joins stages, `|` cuts, `*4` makes copies.
  actor & learner
        ^""",
    "another sign for a stage": """
Unexpected `(`: `+` joins stages, `|` cuts, `*4` makes copies.
  (actor) | learner
  ^""",
    "another sign behind copies": """
Unexpected `%`: `+` joins stages, `|` cuts, `*4` makes copies.
  actor*4% | learner
         ^""",
    "copies that do not divide": """
One number of copies must divide the other, got actor*4 and memory*3. Use memory*2 or memory*4.
  actor*4 | memory*3 | gradient | update
                  ^^""",
    "copies that must divide two": """
One number of copies must divide the other, got actor*6 and memory*4. Use memory*2 or memory*6.
  actor*6 | memory*4 | gradient*2 | update
                  ^^""",
    "very many copies that do not divide": """
One number of copies must divide the other, got actor*999999999 and learner*7. Use learner*3 or \
learner*9.
  actor*999999999 | learner*7
                           ^^""",
    "copies of an update apart": """
update*2 must be one copy, as it takes the mean of all gradients. Use `actor | memory | gradient*2 \
| update` or `actor | memory | gradient+update*2`.
  actor | memory | gradient*2 | update*2
                                      ^^""",
    "copies of an update apart, that can't be joined": """
update*3 must be one copy, as it takes the mean of all gradients. Use `actor | memory*2 | \
gradient*2 | update`.
  actor | memory*2 | gradient*2 | update*3
                                        ^^""",
    "a label in the wrong place": """
label is before memory, but the order is env, policy, memory, label, gradient, update. Did you \
mean `actor | memory+label | gradient+update`?
  actor | label+memory | gradient+update
          ^^^^^""",
    "missing beside a label": """
gradient is missing before update. Did you mean `actor | memory | label*2 | gradient+update`?
  actor | memory | label*2 | update
                             ^^^^^^""",
    "labels that do not divide": """
One number of copies must divide the other, got label*3 and gradient*2. Use gradient or gradient*3.
  actor | memory | label*3 | gradient*2 | update
                                     ^^""",
    "feedback past a label that does not divide": """
One number of copies must divide the other, got memory*3 and gradient*2. Use gradient or \
gradient*3.
  actor | memory*3 | label | gradient*2 | update
                                     ^^""",
    "a range of labels": """
label needs a fixed number of copies. Only pieces that act take a range: `actor*4..16 | learner`.
  actor | memory | label*auto | gradient+update
                        ^^^^^""",
    "a preset that can't be scaled": """
anakin has one copy of each piece, so it cannot be scaled. Write out its plan, `all`, with copies.
  anakin*2
        ^^""",
    "a preset that scales to parts of copies": """
gorila is `actor*4 | memory*2 | gradient*2 | update`, which does not scale evenly to 3. Use \
gorila*2 or gorila*4.
  gorila*3
        ^^""",
    "no copy of a preset": """
Copies of impala must be 1 or more, got 0.
  impala*0
        ^^""",
}


@pytest.mark.parametrize("message", WRONG.values(), ids=WRONG)
def test_a_wrong_text_is_pointed_at(message):
    """The text is the second line of its message."""
    expected = message.removeprefix("\n")
    with pytest.raises(RondelError) as caught:
        parse(expected.splitlines()[1].removeprefix("  "))
    assert str(caught.value) == expected


def test_blanks_do_not_move_the_caret():
    with pytest.raises(RondelError) as caught:
        parse("\n  env*4\n|\tpolcy | learner ")
    assert str(caught.value) == (
        "Unknown stage 'polcy'. Did you mean policy?\n  env*4 | polcy | learner\n          ^^^^^"
    )


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_plan(text):
    with pytest.raises(
        RondelError, match=r"^The plan is empty. Use `all`, or cut it: `actor\*4 \|"
    ):
        parse(text)


def test_all_plans_by_name_are_listed_when_none_is_near():
    with pytest.raises(RondelError) as caught:
        parse("zzz")
    assert all(name in str(caught.value) for name in (*STAGES, *PRESETS))


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ((), "The plan is empty. Use `all`, or cut it: `actor*4 | learner`."),
        (
            (Piece(ACTOR, 4),),
            "memory, gradient and update are missing at the end. "
            "Did you mean `actor*4 | learner`?\n"
            "  actor*4\n"
            "          ^",
        ),
        (
            (Piece(LEARNER), Piece(ACTOR)),
            "memory is before env, but the order is env, policy, memory, gradient, update. "
            "Did you mean `actor | learner`?\n"
            "  learner | actor\n"
            "  ^^^^^^^",
        ),
        (
            (Piece(ACTOR), Piece(("memory", "gradient", "udpate"))),
            "Unknown stage 'udpate'. Did you mean update?\n"
            "  actor | memory+gradient+udpate\n"
            "                          ^^^^^^",
        ),
        (
            (Piece(("actor",), 4), Piece(("learner",))),
            "'actor' is an alias; a Piece needs the names of its stages: ('env', 'policy').\n"
            "  actor*4 | learner\n"
            "  ^^^^^",
        ),
        (
            (Piece(ACTOR, 0), Piece(LEARNER)),
            "Copies of actor must be an integer, 1 or more, got 0.\n  actor*0 | learner\n       ^^",
        ),
        (
            (Piece(ACTOR, 1.5), Piece(LEARNER)),
            "Copies of actor must be an integer, 1 or more, got 1.5.\n"
            "  actor*1.5 | learner\n"
            "       ^^^^",
        ),
        (
            (Piece(ACTOR), Piece(()), Piece(LEARNER)),
            "A piece must have a stage.\n  actor |  | learner\n          ^",
        ),
        ((Piece("env"),), "A piece's stages must be a tuple of names: Piece(('env',))."),
    ],
)
def test_a_wrong_plan_from_python_is_pointed_at_too(pieces, message):
    with pytest.raises(RondelError) as caught:
        Plan(pieces)
    assert str(caught.value) == message


@pytest.mark.parametrize("lag", [-1, 0.5, True, 1001])
def test_a_lag_is_a_whole_number(lag):
    with pytest.raises(RondelError) as caught:
        parse("actor | learner", lag=lag)
    assert str(caught.value) == f"lag must be an integer from 0 to 1,000, got {lag}."


def test_a_stage_that_there_is_not():
    with pytest.raises(RondelError, match=r"Unknown stage 'polcy'\. Did you mean policy"):
        parse("all").piece_of("polcy")
