"""The pictures of the documentation and the tables beside them, made from real runs.

    python docs/pictures/make.py                  all, in a few minutes on 2 cores
    python docs/pictures/make.py plans profile    some

It trains in a temporary folder; what the pages show between `<!-- name -->` and `<!-- end of name
-->` is what `rondel compare` and `rondel profile` print of these runs.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console
from rich.text import Text

import rondel
from rondel.run.analysis import learning_curve
from rondel.run.profiling import diagnosis
from rondel.run.profiling.run_profile import Profile

DOCS = Path(__file__).parents[1]
HOST = "gymnasium:CartPole-v1"
CUT = "actor*2 | learner"
KINDS = {  # what a copy does, and its ink
    "simulator": "#d55e00",
    "xla": "#0072b2",
    "python": "#56b4e9",
    "transport": "#009e73",
    "output": "#000000",
    "waits": learning_curve.PALE,
}


_PANEL = r"\x1b\[2m╭─(?:\x1b\[[\d;]*m)* .*?╯"  # from its corner above to the one below


class Scale(NamedTuple):
    """How much is trained: a test takes less."""

    steps: int = 150_000
    host_steps: int = 30_000
    seeds: int = 5
    host_seeds: int = 5


class Event(NamedTuple):
    """What one copy did, in milliseconds."""

    row: int
    stage: str
    what: str
    began: float
    took: float


def curve(runs: Path, docs: Path, scale: Scale) -> None:
    """The learning curve that a run leaves in its folder."""
    out = runs / "curve"
    _train("ppo", "CartPole-v1", scale.steps, 0, out)
    picture = docs / "pictures" / "curve.png"
    picture.write_bytes((out / "curve.png").read_bytes())
    _shrink(picture)


def panel(runs: Path, docs: Path, scale: Scale) -> None:
    """What a terminal shows while a run goes on: its panel, as an SVG."""
    asked = ["train", "ppo", HOST, "--plan", CUT, "--eval-episodes", "0"]
    print(" ".join(asked), flush=True)
    shown = _on_screen(
        [*asked, "--steps", f"{12 * scale.host_steps}", "--out", str(runs / "panel")]
    )
    panels = re.findall(_PANEL, shown, re.DOTALL)
    text = Text.from_ansi(panels[len(panels) * 3 // 4])
    console = Console(file=io.StringIO(), record=True, width=76, force_terminal=True)
    console.print(text)
    command = f'rondel train ppo {HOST} --plan "{CUT}"'
    # fonts of the reader's system: a picture fetches nothing
    svg = console.export_svg(title=command, unique_id="panel")
    plain = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    (docs / "pictures" / "panel.svg").write_text(plain)


def algorithms(runs: Path, docs: Path, scale: Scale) -> None:
    """PPO and A2C on the same task: a picture of curves, and a table."""
    for name in ("ppo", "a2c"):
        for seed in range(scale.seeds):
            out = runs / "algorithms" / f"{name}-{seed}"
            _train(name, "CartPole-v1", scale.steps, seed, out, on="inline")
    _compared(runs / "algorithms", docs, "algorithms")


def plans(runs: Path, docs: Path, scale: Scale) -> None:
    """One algorithm under two plans: the same curves against steps, others against seconds."""
    for name, plan in (("whole", "all"), ("cut", CUT)):
        for seed in range(scale.host_seeds):
            out = runs / "plans" / f"{name}-{seed}"
            _train("ppo", HOST, scale.host_steps, seed, out, plan=plan)
    _compared(runs / "plans", docs, "plans")


def profile(runs: Path, docs: Path, scale: Scale) -> None:
    """Where the time of a cut run goes: shares, and three of its rounds."""
    out = runs / "profile"
    _train("ppo", HOST, scale.host_steps, 0, out, plan=CUT)
    found = rondel.profile(out, stages=False)
    names, events = _read(out / "trace.json")
    _shrink(_draw(found, names, events, docs / "pictures" / "profile.png"))
    table = [line.rstrip() for line in found.table().splitlines()]
    said = diagnosis.lines(found)
    _write(docs / "profiling.md", "profile", "\n".join(["```", *table, "", *said, "```"]))


WHOLE = Scale()
PARTS = {
    "curve": curve,
    "panel": panel,
    "algorithms": algorithms,
    "plans": plans,
    "profile": profile,
}


def _train(name: str, env: str, steps: int, seed: int, out: Path, **fields: Any) -> None:
    print(f"{name} {env} {fields}, seed {seed}", flush=True)
    with rondel.train(name, env, steps=steps, seed=seed, out=out, eval_episodes=0, **fields):
        pass


def _on_screen(arguments: list[str]) -> str:
    """All that a `rondel` command writes to a terminal, control characters included."""
    terminal, end = pty.openpty()
    size = {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "40"}
    process = subprocess.Popen(
        [sys.executable, "-m", "rondel", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=end,
        env=os.environ | size,
    )
    os.close(end)
    written = b""
    try:
        while data := os.read(terminal, 65536):
            written += data
    except OSError:  # so ends what a terminal gives on Linux
        pass
    finally:
        os.close(terminal)
    if process.wait() != 0:
        raise SystemExit(written.decode())
    return written.decode().replace("\r\n", "\n")


def _compared(runs: Path, docs: Path, name: str) -> None:
    _shrink(rondel.plot(runs, docs / "pictures" / f"{name}.png", overwrite=True))
    _write(docs / "comparing-runs.md", name, str(rondel.compare(runs)))


def _shrink(path: Path) -> None:
    """Few colours are enough, and make small files."""
    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)


def _write(page: Path, name: str, text: str) -> None:
    """Put it in the place of what the page has between the marks of that name."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = page.read_text().partition(begin)
    page.write_text(before + begin + text + "\n" + end + rest.partition(end)[2])


def _read(trace: Path) -> tuple[list[str], list[Event]]:
    """The names of the rows of a trace, and its events."""
    rows: dict[int, str] = {}
    events = []
    for event in json.loads(trace.read_text())["traceEvents"]:
        if event["ph"] == "M":
            rows[event["tid"]] = event["args"]["name"]
        else:
            stage, _, said = event["name"].partition(": ")
            what = said.split()[0]  # "waits for data" -> "waits"
            row = list(rows).index(event["tid"])
            events.append(Event(row, stage, what, event["ts"] / 1e3, event["dur"] / 1e3))
    return list(rows.values()), events


def _draw(found: Profile, names: list[str], events: list[Event], path: Path) -> Path:
    figure = Figure(figsize=(9.6, 4.8), layout="constrained")
    above, below = figure.subplots(2, height_ratios=(2, 3))
    _shares(above, found)
    _rounds(below, names, events)
    handles, labels = above.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(KINDS), frameon=False)
    return learning_curve.save(figure, path)


def _shares(axes: Any, found: Profile) -> None:
    """A bar for each piece of the plan."""
    parts: dict[str, list[float]] = defaultdict(list)
    for piece in found.pieces:
        for kind in KINDS:
            waits = kind == "waits"
            parts[kind].append(1.0 - piece.busy if waits else piece.part(kind))
    left = [0.0] * len(found.pieces)
    for kind, part in parts.items():
        axes.barh(range(len(left)), part, left=left, color=KINDS[kind], label=kind)
        left = [x + more for x, more in zip(left, part, strict=True)]
    _dress(axes, [piece.name for piece in found.pieces], "share of the time")
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.set_xlim(0.0, 1.0)


def _rounds(axes: Any, names: list[str], events: list[Event]) -> None:
    """A row for each copy, over three of the last rounds: from learning to learning."""
    ends = [e.began + e.took for e in events if (e.stage, e.what) == ("learner", "xla")]
    begin, end = ends[-5], ends[-2]  # at the end of the last one all is saved, for the first time
    for event in events:
        first, last = max(event.began, begin), min(event.began + event.took, end)
        if first < last:
            bar = [(first - begin, last - first)]
            axes.broken_barh(
                bar, (event.row - 0.4, 0.8), color=KINDS.get(event.what, KINDS["output"])
            )
    _dress(axes, names, "milliseconds, in three rounds")
    axes.set_xlim(0.0, end - begin)


def _dress(axes: Any, names: list[str], across: str) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel(across, color=learning_curve.GREY)
    axes.tick_params(length=0, labelcolor=learning_curve.GREY)
    axes.spines[["left", "top", "right", "bottom"]].set_visible(False)


def make(names: list[str], docs: Path = DOCS, scale: Scale = WHOLE) -> None:
    with tempfile.TemporaryDirectory() as runs:
        for name in names:
            PARTS[name](Path(runs), docs, scale)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"{', '.join(PARTS)}; or all")
    names = parser.parse_args().names or list(PARTS)
    if unknown := set(names) - set(PARTS):
        parser.error(f"{', '.join(unknown)} is no picture: {', '.join(PARTS)} are.")
    make(names)


if __name__ == "__main__":
    main()
