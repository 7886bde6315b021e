"""The displays: calm, readable at 80 columns, and no trace left in the terminal."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from rondel import formatting
from rondel.run.display import display, panel
from rondel.run.display.display import Display, Lines, Panel
from rondel.run.display.round_record import Goal, RoundRecord

SUMMARY = [("env", "jax:CartPole-v1 (fastest of jax, gymnasium)"), ("plan", "all, one program")]

GOAL = Goal("ppo", "jax:CartPole-v1", 100_000)
BILLIONS = GOAL._replace(total_steps=3_000_000_000)


def progress(steps=42_000, seconds=10.0, **changes):
    made = RoundRecord(
        round=9,
        goal=GOAL,
        returns=np.zeros(0),
        lengths=np.zeros(0),
        steps=steps,
        seconds=seconds,
        steps_per_second=2_000.0,
        episodes=830,
        return_mean=312.44,
        length_mean=50.0,
        metrics={"loss/policy": -0.0123, "entropy": 0.00054},
    )
    return made._replace(**changes)


class Terminal(io.StringIO):
    def isatty(self):
        return True


# Lines.


def test_nothing_is_left_once_the_return_that_ends_a_run_is_reached():
    until = GOAL._replace(until_return=300.0)  # 312.44 are reached
    assert progress(goal=until).seconds_left == 0.0
    assert progress(goal=until, return_mean=299.9).seconds_left == 29.0
    assert progress(goal=until, episodes=99).seconds_left == 29.0  # their mean counts from 100 on
    assert progress(goal=until, return_mean=None).seconds_left == 29.0


def test_lines_say_what_will_run_how_far_it_is_and_how_it_ended():
    stream = io.StringIO()
    lines = Lines(stream)
    lines.start(SUMMARY)
    lines.update(progress())
    lines.stop("Done.")
    # 58,000 steps are left, at 2,000 a second: 29 seconds
    assert stream.getvalue().splitlines() == [
        "env   jax:CartPole-v1 (fastest of jax, gymnasium)",
        "plan  all, one program",
        "42,000 of 100,000 steps (42%), 2,000 steps/s, 830 episodes, return 312.4,",
        "  length 50.0, loss/policy -0.012, entropy 5.4e-04, 0:29 left",
        "Done.",
    ]


def test_lines_come_at_most_every_few_seconds_and_the_last_is_never_missing():
    stream = io.StringIO()
    lines = Lines(stream, every=5.0)
    for second in range(13):
        lines.update(progress(steps=second, seconds=float(second)))
    lines.stop("")
    shown = [line.split(" of ")[0] for line in stream.getvalue().splitlines() if " of " in line]
    assert shown == ["0", "5", "10", "12"]


def test_notes_are_wrapped_and_paths_are_not():
    stream, path = io.StringIO(), "/a/rather/long/" + "x" * 80 + "/path with-a-hyphen"
    Lines(stream).note(f"{'what is said ' * 8}of {path}: it is full")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert path.split()[0] in lines[2]
    assert max(len(line) for line in lines if "xxx" not in line) <= 80
    assert all(line.startswith("  ") for line in lines[1:])


def test_lines_hold_no_control_characters_and_suit_any_encoding():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    lines = Lines(stream)
    lines.start([("env", "\x1b[31mgröße\r\nx")])
    lines.update(progress(return_mean=None, length_mean=None, metrics={}, steps_per_second=None))
    lines.stop("")
    assert raw.getvalue() == (b"env   [31mgr??e  x\n42,000 of 100,000 steps (42%), 830 episodes\n")


# The panel.


def drawn(panel_progress, curve=(), width=76):
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(panel.of_run(panel_progress, list(curve), width))
    return console.export_text().splitlines()


def test_the_panel_says_all_that_matters_within_its_width():
    many = {f"a/metric/with/a/rather/long/name/{i}": 1e9 for i in range(9)}
    for shown in (progress(), progress(metrics=many, goal=BILLIONS, steps=123_456_789)):
        lines = drawn(
            shown._replace(goal=shown.goal._replace(until_return=475.0)), [float("nan")] * 52
        )
        assert {cell_len(line) for line in lines} == {76}
    lines = drawn(progress(goal=GOAL._replace(until_return=475.0)))
    assert "ppo on jax:CartPole-v1" in lines[0]
    words = [line.strip("│ ").split() for line in lines]
    assert words[1][-3:] == ["42%", "0:29", "left"]
    assert words[4:-1] == [
        ["return", "312.4", "until", "475.0", "loss/policy", "-0.012"],
        ["length", "50.0", "entropy", "5.4e-04"],
        ["episodes", "830"],
        ["steps", "42,000", "of", "100k"],
        ["steps/s", "2,000"],
    ]


def test_before_the_first_episode_a_dash_stands_for_what_is_unknown():
    lines = drawn(progress(return_mean=None, length_mean=None, metrics={}))
    assert [line.strip("│ ").split() for line in lines if "return" in line] == [["return", "-"]]


def test_the_curve_grows_with_the_run():
    nan = float("nan")
    assert panel.sparkline([nan, 0.0, nan, 7.0, 3.0, nan]) == " ▁▁█▄"
    assert panel.sparkline([nan, nan]) == ""
    assert panel.sparkline([5.0, 5.0]) == "▁▁"


def test_the_panel_draws_at_most_twice_a_second():
    stream = Terminal()
    panel = Panel(stream)
    panel.start(SUMMARY)
    for i in range(1000):
        panel.update(progress(steps=i, seconds=i / 1000))
    panel.stop("Done.")
    text = stream.getvalue()
    assert text.count("loss/policy") <= 4
    assert "999 of 100k" in text  # the last one is shown
    assert text.rstrip().endswith("Done.")


def test_rows_of_a_table_are_whole_in_a_narrow_terminal(monkeypatch):
    row = f"  update      {'xla':19} 94.1%{'':15}      12,345   1.0 MiB"
    for columns in (30, 79, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        stream = Terminal()
        Panel(stream).stop(f"Done.\n{row}\nIt is bound by what takes most of its time.")
        lines = stream.getvalue().splitlines()
        assert row in [line.removeprefix("  ") if columns > 80 else line for line in lines]
        assert all(len(line) <= columns for line in lines if "xla" not in line)


def test_the_cursor_comes_back():
    stream = Terminal()
    panel = Panel(stream)
    panel.start(SUMMARY)
    panel.update(progress())
    hide, show = "\x1b[?25l", "\x1b[?25h"
    assert stream.getvalue().rfind(hide) > stream.getvalue().rfind(show)
    panel.stop("")
    panel.stop("")  # twice does no harm
    assert stream.getvalue().rfind(show) > stream.getvalue().rfind(hide)


def test_stop_may_come_before_start():
    for shown in (Panel(Terminal()), Lines(io.StringIO()), Display()):
        shown.stop("Refused.")


INTERRUPTED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_display import SUMMARY, progress
from rondel.run.display import display
shown = display.choose()
shown.start(SUMMARY)
shown.update(progress())
print("for machines")
os.kill(os.getpid(), signal.SIGINT)  # and nobody calls stop
"""


def test_an_interrupt_leaves_the_terminal_good_and_stdout_clean():
    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0) as terminal:
        command = [sys.executable, "-c", INTERRUPTED, str(Path(__file__).parent)]
        env = os.environ | {"TERM": "xterm", "COLUMNS": "80"}
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, env=env, timeout=60)
        os.close(theirs)
        shown = b""
        while chunk := _read(terminal):
            shown += chunk
    assert done.stdout == b"for machines\n"
    assert b"312.4" in shown
    assert b"KeyboardInterrupt" in shown
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l") > 0


def _read(terminal):
    try:
        return terminal.read(4096)
    except OSError:  # how Linux says that the other side of a terminal is closed
        return b""


# The choice, and numbers.


def test_the_display_suits_the_stream(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(display.choose(Terminal()), Panel)
    assert isinstance(display.choose(io.StringIO()), Lines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(display.choose(Terminal()), Lines)


def test_displays_go_to_stderr_by_default(capsys):
    shown = display.choose()
    shown.start(SUMMARY)
    shown.stop("Done.")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("Done.\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0.000"),
        (-0.01234, "-0.012"),
        (0.000123, "1.2e-04"),
        (12.345, "12.3"),
        (-1234.5, "-1,234"),
        (1_234_567.0, "1,234,567"),
        (float("nan"), "nan"),
    ],
)
def test_numbers_are_short(value, text):
    assert formatting.number(value) == text


def test_durations_and_counts_are_short():
    assert [formatting.duration(s) for s in (0, 59.2, 3599, 3600)] == [
        "0:00",
        "1:00",
        "59:59",
        "1:00:00",
    ]
    assert [formatting.short_number(n) for n in (999, 1500, 1_250_000, 10**9)] == [
        "999",
        "1.5k",
        "1.25M",
        "1B",
    ]


# Several seeds.


def test_lines_of_several_seeds_each_have_their_own_time():
    stream = io.StringIO()
    lines = Lines(stream, every=5.0)
    for second in (0.0, 1.0, 6.0):
        for seed in (0, 12):
            lines.update(progress(seed=seed, seconds=second, steps=int(second)))
    lines.stop("seed 0: done\nDone.")
    shown = stream.getvalue().splitlines()
    assert [line.split(" of ")[0] for line in shown[:4]] == [
        "seed 0: 0",
        "seed 12: 0",
        "seed 0: 6",
        "seed 12: 6",
    ]
    assert shown[4:] == ["seed 0: done", "Done."]
    assert max(map(len, shown)) <= 80


def test_the_panel_has_a_row_for_each_seed_within_its_width():
    seeds = [progress(seed=seed, steps=10**9 + seed, goal=BILLIONS) for seed in range(12)]
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(panel.of_seeds(seeds, 76))
    lines = console.export_text().splitlines()
    assert {cell_len(line) for line in lines} == {76}
    words = [line.strip("│ ").split() for line in lines]
    assert words[1] == ["seed", "steps", "return", "length", "episodes", "steps/s", "left"]
    assert [row[0] for row in words[2:-1]] == [str(seed) for seed in range(12)]
    assert all("312.4" in row and "2,000" in row for row in words[2:-1])


def test_the_panel_of_several_seeds_shows_the_last_of_each():
    stream = Terminal()
    panel = Panel(stream)
    panel.start(SUMMARY)
    for i in range(100):
        panel.update(progress(seed=i % 2, steps=i, seconds=i / 1000))
    panel.update(progress(seed=1, steps=7, seconds=0.0))  # one that began later
    panel.stop("")
    last = stream.getvalue().rpartition("episodes")[2].split()
    assert "98" in last
    assert "7" in last
