"""The ring in the panel and in a log: what is drawn of fixed numbers, without colours."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from rondel.run.display import panel, utilisation
from rondel.run.display.display import Lines, Panel
from rondel.run.display.round_record import Goal, RoundRecord
from rondel.run.display.utilisation import PieceUtilisation, Utilisation
from rondel.run.profiling.run_profile import Piece

MIB = 2**20
SAYS = "env (61% of actor's time; actor idle 5%)."
ACTOR = PieceUtilisation(
    "actor",
    4,
    0.95,
    (("env", 0.61), ("policy", 0.22), ("transport", 0.12), ("waits for weights", 0.05)),
    4 * 310 * MIB,
)
LEARNER = PieceUtilisation(
    "learner", 1, 0.2, (("waits for data", 0.8), ("learner", 0.2)), 512 * MIB
)
CUT = Utilisation(
    (ACTOR, LEARNER), "env", 0.61, "actor", SAYS, 1, False, 410 * MIB, 20 * 1024 * MIB
)
FUSED = Utilisation(
    (PieceUtilisation("all", 1, 1.0, (("all", 0.98), ("python", 0.02))),),
    *("all", 0.98, "all", "all (98% of the time in one program)."),
    *(0, False, 410 * MIB, 0),
)
SEEN = RoundRecord(
    goal=Goal("ppo", "gymnasium:Humanoid-v5", 100_000),
    round=9,
    returns=np.zeros(0),
    lengths=np.zeros(0),
    steps=42_000,
    seconds=10.0,
    steps_per_second=2_000.0,
    episodes=830,
    return_mean=312.44,
    length_mean=50.0,
    metrics={"loss/policy": -0.0123, "policy/lag": 1.0, "policy/lag_max": 1.0},
    utilisation=CUT,
)
CURVE = [1.0, 2.0, 3.0, 4.0] + [float("nan")] * 48

AT_80 = """\
╭─ ppo on gymnasium:Humanoid-v5 ───────────────────────────────────────────╮
│ ━━━━━━━━━━━━━━━━━━━━━━┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄   42%  0:29 left    │
│ ▁▃▅█                                                                     │
│                                                                          │
│ return    312.4                   loss/policy                 -0.012     │
│ length    50.0                                                           │
│ episodes  830                                                            │
│ steps     42,000 of 100k                                                 │
│ steps/s   2,000                                                          │
│                                                                          │
│ ╭▶ actor, 4 copies ━━━━━━━━━━━┄  95% env 61%, policy 22%, transport 12%  │
│ ╰─ learner         ━━┄┄┄┄┄┄┄┄┄┄  20% waits for data 80%, learner 20%     │
│ bound     env (61% of actor's time; actor idle 5%).                      │
│ lag       weights 1 round old, now 1                                     │
│ memory    driver 410 MiB, actor 4 x 310 MiB, learner 512 MiB,            │
│           20.0 GiB left                                                  │
╰──────────────────────────────────────────────────────────────────────────╯"""

AT_60 = """\
╭─ ppo on gymnasium:Humanoid-v5 ───────────────────────╮
│ ━━━━━━━━━━━━━┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄   42%  0:29 left    │
│ ▁█                                                   │
│                                                      │
│ return    312.4                                      │
│ length    50.0                                       │
│ episodes  830                                        │
│ steps     42,000 of 100k                             │
│ steps/s   2,000                                      │
│                                                      │
│ ↻  all ━━━━━━━━━━━━ 100% all 98%, python 2%          │
│ bound     all (98% of the time in one program).      │
│ memory    driver 410 MiB                             │
╰──────────────────────────────────────────────────────╯"""


def drawn(progress: RoundRecord, width: int) -> str:
    console = Console(record=True, width=width, file=io.StringIO(), no_color=True)
    console.print(panel.of_run(progress, CURVE, width - 4))
    return console.export_text().replace("\N{NO-BREAK SPACE}", " ").rstrip("\n")


def test_the_panel_at_80_columns() -> None:
    assert drawn(SEEN, 80) == AT_80


def test_the_panel_of_one_program_at_60_columns() -> None:
    assert drawn(SEEN._replace(utilisation=FUSED, metrics={}), 60) == AT_60


@pytest.mark.parametrize("width", [40, 60, 80])
def test_five_pieces_with_long_names_stay_in_the_box(width: int) -> None:
    long = [ACTOR._replace(name="actor+memory+gradient"), LEARNER, ACTOR, LEARNER, LEARNER]
    many = {f"a/metric/with/a/rather/long/name/{i}": 1e9 for i in range(9)}
    lines = drawn(SEEN._replace(utilisation=CUT._replace(pieces=tuple(long)), metrics=many), width)
    assert {cell_len(line) for line in lines.splitlines()} == {width - 4}
    rows = [line[2:4] for line in lines.splitlines() if "━" in line]
    assert rows[1:] == ["╭▶", "│ ", "│ ", "│ ", "╰─"]


def test_a_free_run_says_how_old_weights_may_be_and_are() -> None:
    free = SEEN._replace(utilisation=CUT._replace(free=True, lag=2), metrics={"policy/lag": 0.75})
    assert "weights at most 2 rounds old, now 0.75" in drawn(free, 80)


def test_a_log_says_the_bound_when_it_is_new_and_else_every_minute() -> None:
    stream = io.StringIO()
    lines = Lines(stream, every=5.0)
    loads = {0.0: None, 5.0: CUT, 10.0: CUT, 15.0: FUSED, 20.0: FUSED, 80.0: FUSED}
    for seconds, seen in loads.items():
        lines.update(SEEN._replace(seconds=seconds, utilisation=seen, metrics={}))
    said = stream.getvalue().replace("\N{NO-BREAK SPACE}", " ").splitlines()
    told = [i for i, line in enumerate(said) if line.startswith("bound by")]
    assert [said[i].split(" (")[0] for i in told] == ["bound by env", *["bound by all"] * 2]
    assert said[told[0] : told[0] + 2] == [
        "bound by env (61% of the time of actor), busy: actor x 4 95%, learner 20%,",
        "  memory: driver 410 MiB, actor 4 x 310 MiB, learner 512 MiB, 20.0 GiB left",
    ]


def test_no_line_of_a_log_is_longer_than_80_columns() -> None:
    stream = io.StringIO()
    many = {f"loss/a-rather-long-name-{i}": 0.123 for i in range(6)}
    Lines(stream, every=5.0).update(SEEN._replace(metrics=many))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("42,000 of 100,000 steps (42%), 2,000 steps/s, 830 episodes, return")
    assert all(line.startswith("  ") for line in lines[1:3])
    assert "loss/a-rather-long-name-5 0.123," in stream.getvalue()  # a name keeps its value


def test_a_name_that_is_too_long_keeps_its_copies() -> None:
    long = ACTOR._replace(name="actor+memory+gradient")
    assert utilisation._cut(long, 15) == "actor+memo… x 4"


def test_copies_are_said_as_a_profile_says_them_where_there_is_room() -> None:
    pieces = (ACTOR, ACTOR._replace(name="learner", copies=1))
    shares = Piece(ACTOR.name, ACTOR.copies, (), ())
    for width, name in ((60, shares.title), (59, "actor x 4")):
        assert [text.rstrip() for text in utilisation._names(pieces, width)] == [name, "learner"]


def test_an_ending_keeps_its_lines_and_a_table_its_rows() -> None:
    row = f"{'actor':20}{'env':10}{'simulator':18}{'61.0%':>6}{'1,280':>11}{'1.0 MiB':>11}"
    message = f"Done.\n{row}\n{'word ' * 20}"
    stream = io.StringIO()
    Lines(stream).stop(message)
    assert stream.getvalue().splitlines() == [
        "Done.",
        row,
        ("word " * 16).strip(),
        ("word " * 4).strip(),
    ]
    full = f"{row:>80}"  # as wide as a table can be
    for width, seen in ((60, full), (80, full), (100, f"  {full}")):
        stream = io.StringIO()
        panel = Panel(stream)
        panel._console = Console(file=stream, width=width)
        panel.stop(message.replace(row, full))
        lines = stream.getvalue().splitlines()
        assert lines[1].rstrip() == seen.rstrip()
        assert all(cell_len(line) <= width for line in lines[2:])


def test_a_bar_reads_without_colours() -> None:
    assert utilisation.bar(0.5, 8, "cyan").plain == "━━━━┄┄┄┄"
    assert utilisation.bar(1.2, 4, "").plain == "━━━━"


def test_a_path_is_not_broken() -> None:
    path = f"runs/{'long' * 25}/checkpoints/000001"
    stream = io.StringIO()
    Lines(stream).start([("folder", path)])
    Lines(stream).stop(f"Done: 4 steps\nCheckpoint: {path}")
    assert stream.getvalue().split() == ["folder", path, "Done:", "4", "steps", "Checkpoint:", path]
