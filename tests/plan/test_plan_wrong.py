"""What is said of plans that are none, and where it points."""

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
There is no stage named 'lerner'; did you mean learner?
  actor*3 | lerner
            ^^^^^^""",
    "unknown, far": f"""
There is no stage named 'zzz'; there are {NAMES} and actor.
  zzz | learner
  ^^^""",
    "a word alone may be a preset": """
There is no stage and no plan named 'imapla'; did you mean impala?
  imapla*8
  ^^^^^^""",
    "a capital": """
There is no stage named 'Actor'; did you mean actor?
  Actor | learner
  ^^^^^""",
    "a preset within": """
impala is a plan of its own and stands alone: it is `actor*4 | learner`.
  impala*8 | learner
  ^^^^^^""",
    "missing at the end": """
memory, gradient and update are missing at the end; `actor*4 | learner` would work.
  actor*4
          ^""",
    "missing within": """
memory is missing before gradient; `actor*4 | learner` would work.
  actor*4 | gradient+update
            ^^^^^^^^""",
    "missing at the start": """
env and policy are missing before memory; `all` would work.
  learner
  ^^^^^^^""",
    "missing, and more is wrong": """
policy is missing before memory.
  env*2 | memory*3 | gradient+update
          ^^^^^^""",
    "doubled": """
policy is here a second time, and each stage has one place; `actor | learner` would work.
  actor + policy | learner
          ^^^^^^""",
    "pieces in the wrong order": """
memory stands before env, and the order is env, policy, memory, gradient, update; \
`actor*2 | learner` would work.
  learner | actor*2
  ^^^^^^^""",
    "stages in the wrong order": """
memory stands before policy, and the order is env, policy, memory, gradient, update; \
`env | policy | memory | gradient+update` would work.
  env+memory | policy+gradient+update
      ^^^^^^""",
    "no copy": """
0 copies of actor can't run: a whole number, 1 or more, would work.
  actor*0 | learner
       ^^""",
    "less than no copy": """
-1 copies of actor can't run: a whole number, 1 or more, would work.
  actor*-1 | learner
       ^^^""",
    "half a copy": """
'2.5' is no number of copies: a whole number, 1 or more, would work, or a range (`4..16`), or \
`auto`.
  actor*2.5 | learner
        ^^^""",
    "a range that falls": """
16..4 is no range of copies: from 1 or more up, as in `*4..16`, would work.
  actor*16..4 | learner
       ^^^^^^""",
    "a range of learners": """
How many copies of learner there are changes what is learned, so it is a number; a range is of \
pieces that only act: `actor*4..16 | learner` would work.
  actor | learner*auto
                 ^^^^^""",
    "a range of a plan whose copies learn": """
ddppo is `all*2`. How many copies of all there are changes what is learned, so it is a number; a \
range is of pieces that only act: `actor*4..16 | learner` would work.
  ddppo*auto
       ^^^^^""",
    "missing, with a range": """
memory is missing before gradient; `actor*1..4 | learner` would work.
  actor*1..4 | gradient+update
               ^^^^^^^^""",
    "copies of nothing": f"""
A stage is missing before `*`; one of {NAMES} or actor would work.
  *4 | learner
  ^""",
    "copies without a number": """
A number of copies is missing behind `*`; `*4` would work.
  actor* | learner
       ^""",
    "copies of copies": """
This piece's copies are given already; one `*` would work.
  actor*4*2 | learner
         ^""",
    "copies in front": """
Copies stand behind what is copied: `actor*4`.
  4*actor | learner
  ^""",
    "copies within a piece": """
Copies are of the whole piece, so `*4` stands at its end: `actor+memory*4`.
  actor*4+memory | gradient+update
         ^""",
    "neither joined nor cut": """
`+` or `|` is missing between actor and learner: `+` keeps them together, `|` cuts.
  actor learner
        ^^^^^^^""",
    "not cut": """
`|` is missing before learner, to cut there.
  actor*4 learner
          ^^^^^^^""",
    "joined twice": f"""
A stage is missing before `+`; one of {NAMES} or actor would work.
  actor ++ learner
         ^""",
    "cut at the end": f"""
A stage is missing at the end; one of {NAMES} or actor would work.
  actor |
         ^""",
    "cut twice": f"""
A stage is missing before `|`; one of {NAMES} or actor would work.
  actor || learner
         ^""",
    "another sign between": """
`&` means nothing in a plan: `+` joins stages, `|` cuts, `*4` makes copies.
  actor & learner
        ^""",
    "another sign for a stage": """
`(` means nothing in a plan: `+` joins stages, `|` cuts, `*4` makes copies.
  (actor) | learner
  ^""",
    "another sign behind copies": """
`%` means nothing in a plan: `+` joins stages, `|` cuts, `*4` makes copies.
  actor*4% | learner
         ^""",
    "copies that do not divide": """
actor*4 can't be dealt out evenly to memory*3: one number must divide the other; \
memory*2 or memory*4 would work.
  actor*4 | memory*3 | gradient | update
                  ^^""",
    "copies that must divide two": """
actor*6 can't be dealt out evenly to memory*4: one number must divide the other; \
memory*2 or memory*6 would work.
  actor*6 | memory*4 | gradient*2 | update
                  ^^""",
    "very many copies that do not divide": """
actor*999999999 can't be dealt out evenly to learner*7: one number must divide the other; \
learner*3 or learner*9 would work.
  actor*999999999 | learner*7
                           ^^""",
    "copies of an update apart": """
update*2 apart from gradient would break norms and counters: it takes the mean of all gradients, \
so there is one of it; `actor | memory | gradient*2 | update` or \
`actor | memory | gradient+update*2` would work.
  actor | memory | gradient*2 | update*2
                                      ^^""",
    "copies of an update apart, that can't be joined": """
update*3 apart from gradient would break norms and counters: it takes the mean of all gradients, \
so there is one of it; `actor | memory*2 | gradient*2 | update` would work.
  actor | memory*2 | gradient*2 | update*3
                                        ^^""",
    "a label in the wrong place": """
label stands before memory, and the order is env, policy, memory, label, gradient, update; \
`actor | memory+label | gradient+update` would work.
  actor | label+memory | gradient+update
          ^^^^^""",
    "missing beside a label": """
gradient is missing before update; `actor | memory | label*2 | gradient+update` would work.
  actor | memory | label*2 | update
                             ^^^^^^""",
    "labels that do not divide": """
label*3 can't be dealt out evenly to gradient*2: one number must divide the other; \
gradient or gradient*3 would work.
  actor | memory | label*3 | gradient*2 | update
                                     ^^""",
    "feedback past a label that does not divide": """
memory*3 can't be dealt out evenly to gradient*2: one number must divide the other; \
gradient or gradient*3 would work.
  actor | memory*3 | label | gradient*2 | update
                                     ^^""",
    "a range of labels": """
How many copies of label there are is a number; a range is of pieces that only act: \
`actor*4..16 | learner` would work.
  actor | memory | label*auto | gradient+update
                        ^^^^^""",
    "a preset that can't be scaled": """
anakin has one copy of each piece, so it is unclear what to copy; write it out: `all`, with your \
copies.
  anakin*2
        ^^""",
    "a preset that scales to parts of copies": """
gorila is `actor*4 | memory*2 | gradient*2 | update`, which does not scale evenly to 3; \
gorila*2 or gorila*4 would work.
  gorila*3
        ^^""",
    "no copy of a preset": """
0 copies of impala can't run: a whole number, 1 or more, would work.
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
        "There is no stage named 'polcy'; did you mean policy?\n"
        "  env*4 | polcy | learner\n"
        "          ^^^^^"
    )


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_plan(text):
    with pytest.raises(RondelError, match=r"^The plan is empty; `all` would work, or `actor\*4 \|"):
        parse(text)


def test_all_plans_by_name_are_listed_when_none_is_near():
    with pytest.raises(RondelError) as caught:
        parse("zzz")
    assert all(name in str(caught.value) for name in (*STAGES, *PRESETS))


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ((), "The plan is empty; `all` would work, or `actor*4 | learner`."),
        (
            (Piece(ACTOR, 4),),
            "memory, gradient and update are missing at the end; `actor*4 | learner` would work.\n"
            "  actor*4\n"
            "          ^",
        ),
        (
            (Piece(LEARNER), Piece(ACTOR)),
            "memory stands before env, and the order is env, policy, memory, gradient, update; "
            "`actor | learner` would work.\n"
            "  learner | actor\n"
            "  ^^^^^^^",
        ),
        (
            (Piece(ACTOR), Piece(("memory", "gradient", "udpate"))),
            "There is no stage named 'udpate'; did you mean update?\n"
            "  actor | memory+gradient+udpate\n"
            "                          ^^^^^^",
        ),
        (
            (Piece(("actor",), 4), Piece(("learner",))),
            "'actor' is short for several stages; a Piece names each of them: "
            "('env', 'policy').\n"
            "  actor*4 | learner\n"
            "  ^^^^^",
        ),
        (
            (Piece(ACTOR, 0), Piece(LEARNER)),
            "0 copies of actor can't run: a whole number, 1 or more, would work.\n"
            "  actor*0 | learner\n"
            "       ^^",
        ),
        (
            (Piece(ACTOR, 1.5), Piece(LEARNER)),
            "1.5 copies of actor can't run: a whole number, 1 or more, would work.\n"
            "  actor*1.5 | learner\n"
            "       ^^^^",
        ),
        (
            (Piece(ACTOR), Piece(()), Piece(LEARNER)),
            "A piece without stages can do nothing; leave it out.\n"
            "  actor |  | learner\n"
            "          ^",
        ),
        ((Piece("env"),), "A piece's stages are a tuple of names: Piece(('env',)) would work."),
    ],
)
def test_a_wrong_plan_from_python_is_pointed_at_too(pieces, message):
    with pytest.raises(RondelError) as caught:
        Plan(pieces)
    assert str(caught.value) == message


@pytest.mark.parametrize("lag", [-1, 0.5, True])
def test_a_lag_is_a_whole_number(lag):
    with pytest.raises(RondelError) as caught:
        parse("actor | learner", lag=lag)
    assert str(caught.value) == f"lag={lag} can't work: a whole number, 0 or more, would."


def test_a_stage_that_there_is_not():
    with pytest.raises(RondelError, match="no stage named 'polcy'; did you mean policy"):
        parse("all").piece_of("polcy")
