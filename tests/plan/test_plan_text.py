"""The plan language: what parses, how it prints, and what is said of what does not parse."""

import subprocess
import sys
from itertools import pairwise, product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rondel.errors import RondelError
from rondel.plan.parser import parse
from rondel.plan.pieces import AUTO, ORDER, STAGES, Piece
from rondel.plan.plan import Plan
from rondel.plan.presets import PRESETS

ACTOR, LEARNER = STAGES[:2], STAGES[2:]


def cuts(stages=STAGES):
    """All ways to cut the ring into pieces."""
    ways = []
    for where in product((False, True), repeat=len(stages) - 1):
        pieces = [[stages[0]]]
        for stage, apart in zip(stages[1:], where, strict=True):
            pieces.append([stage]) if apart else pieces[-1].append(stage)
        ways.append([tuple(piece) for piece in pieces])
    return ways


@st.composite
def plans(draw):
    """Legal plans: each cut, with copies that divide each other."""
    cut = draw(st.sampled_from(cuts() + cuts(ORDER)))
    copies = [draw(st.integers(1, 12)) for _ in cut]
    if cut[-1] == ("update",):
        copies[-1] = 1
    pairs = list(pairwise(copies))
    if ("label",) in cut:  # past which memory and gradient exchange something too
        at = cut.index(("label",))
        pairs.append((copies[at - 1], copies[at + 1]))
    assume(all(one % two == 0 or two % one == 0 for one, two in pairs))
    pieces = list(map(Piece, cut, copies))
    if cut[0] in (("env",), ("env", "policy")) and draw(st.booleans()):
        pieces[0] = Piece(cut[0], *draw(st.sampled_from([(AUTO, 1), (9, 2), (4, 4)])))
    return Plan(tuple(pieces), draw(st.integers(0, 3)), draw(st.booleans()))


def test_there_are_16_cuts_and_all_are_legal():
    texts = {str(Plan(tuple(map(Piece, cut)))) for cut in cuts()}
    assert len(texts) == 16
    assert {"all", "actor | learner", "env | policy | memory | gradient | update"} <= texts


def test_a_label_may_be_cut_off_like_any_stage():
    texts = {str(Plan(tuple(map(Piece, cut)))) for cut in cuts(ORDER)}
    assert len(texts) == 32
    assert {
        "actor+memory+label+gradient+update",
        "actor | memory | label | gradient+update",
    } < texts


def test_a_label_that_is_not_named_is_with_the_gradient():
    plan = parse("actor*4 | memory | label*2 | gradient+update")
    assert plan.piece_of("label") == Piece(("label",), 2)
    assert parse("actor+memory+gradient*8 | update").copies("label") == 8
    assert parse("all").piece_of("label") == Piece(STAGES)


@given(plans())
def test_what_is_printed_parses_back(plan):
    assert parse(str(plan), plan.lag, plan.free) == plan
    assert hash(parse(str(plan), plan.lag, plan.free)) == hash(plan)


@given(plans())
def test_written_out_it_is_the_same(plan):
    """Blanks, aliases and `*1` do not matter."""
    text = "\n|\t".join("  + ".join(piece.stages) + f" *{piece.number}" for piece in plan.pieces)
    assert parse(text).pieces == plan.pieces
    assert parse(str(plan).replace(" ", "")).pieces == plan.pieces


def test_copies_are_of_the_whole_piece():
    plan = parse("actor+memory+gradient*8 | update")
    assert plan.pieces == (Piece(STAGES[:4], 8), Piece(("update",), 1))
    assert plan.copies("env") == plan.copies("gradient") == 8
    assert plan.piece_of("update") == Piece(("update",))


@pytest.mark.parametrize(
    "name",
    "actor learner all env policy+learner actor+memory actor+memory+gradient gradient+update "
    "memory+gradient policy+memory policy+memory+gradient".split(),
)
def test_a_piece_has_the_shortest_name(name):
    meaning = {"actor": ACTOR, "learner": LEARNER, "all": STAGES}
    stages = [stage for word in name.split("+") for stage in meaning.get(word, (word,))]
    assert Piece(tuple(stages), 3).name == name


def test_only_one_piece_with_one_copy_is_uncut():
    assert not parse("all").cut
    assert parse("all*2").cut
    assert parse("actor | learner").cut


def test_lists_become_tuples_so_that_a_plan_can_be_a_key():
    plan = Plan([Piece(list(ACTOR), 4), Piece(list(LEARNER))])
    assert {plan: 1}[parse("actor*4 | learner")] == 1


def test_every_preset_parses():
    for name, preset in PRESETS.items():
        plan = parse(name)
        assert str(plan) == preset.text  # canonical already
        assert (plan.lag, plan.free) == (preset.lag, preset.free)


def test_what_is_asked_goes_before_what_the_preset_says():
    assert parse("impala") == parse("actor*4 | learner", lag=1, free=True)
    assert parse("impala", lag=0, free=False) == parse("actor*4 | learner")
    assert parse("actor*4 | learner").lag == 0


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("impala*8", "actor*8 | learner"),
        (" impala * 8 ", "actor*8 | learner"),
        ("impala*1", "actor | learner"),
        ("apex*8", "actor*8 | memory*4 | gradient+update"),
        ("gorila*6", "actor*6 | memory*3 | gradient*3 | update"),
        ("gorila*2", "actor*2 | memory | gradient | update"),
        ("gorila*1", "actor | memory | gradient | update"),
        ("qtopt*8", "actor*8 | memory | label*4 | gradient+update"),
        ("ddppo*5", "all*5"),
        ("anakin*1", "all"),
        ("a3c*16", "actor+memory+gradient*16 | update"),
        ("impala*auto", "actor*auto | learner"),
        ("apex*4..16", "actor*4..16 | memory*2 | gradient+update"),
        ("seed*auto", "env*auto | policy+learner"),
        ("sebulba * 2..8", "env*2..8 | policy | learner"),
    ],
)
def test_presets_scale(text, plan):
    assert str(parse(text)) == plan
    assert parse(text).lag == parse(text.split("*")[0]).lag


@given(st.text(alphabet="env actor+|*-2.&", max_size=30))
def test_any_text_is_a_plan_or_gets_a_sentence(text):
    try:
        plan = parse(text)
    except RondelError as error:
        sentence, *pointing = str(error).split("\n")
        assert sentence.endswith((".", "?"))
        assert len(pointing) in (0, 2)
    else:
        assert parse(str(plan)) == plan


def test_plans_need_no_jax():
    code = "import sys, rondel.plan.lag, rondel.plan.resources; print('jax' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
