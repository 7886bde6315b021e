"""Commands that read what runs have written: `profile`, `plot`, `compare`."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal, TypeAlias

import tyro

import rondel
from rondel.cli.command import Command, LoadRun, call, print_lines
from rondel.run.profiling import diagnosis

RunFolders: TypeAlias = Annotated[
    tyro.conf.Positional[tuple[str, ...]],
    tyro.conf.arg(metavar="PATH...", help_behavior_hint="(required)"),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile(LoadRun):
    """Show where time went and what would be faster."""

    stages: bool = True  # run a few more rounds, to time the stages of a program one by one


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw learning curves.

    Runs that differ only by seed are one line.
    """

    paths: RunFolders  # folders of runs, or folders that hold some
    out: str = "curves.png"  # the picture's file, a .png; an earlier curves.png is replaced
    against: Literal["steps", "seconds", "both"] = "both"  # the horizontal axis
    iqm: bool = False  # the interquartile mean of the seeds in place of the mean
    overwrite: bool = False  # replace an existing file


@dataclasses.dataclass(frozen=True)
class Compare:
    """Compare runs in a Markdown table.

    It names a winner only if confidence intervals allow that.
    """

    paths: RunFolders  # folders of runs, or folders that hold some
    iqm: bool = False  # the interquartile mean of the seeds in place of the mean


def _profile(options: Profile) -> None:
    found = call(rondel.profile, options)
    print_lines([found.table(), "", *diagnosis.lines(found)])


def _plot(options: Plot) -> None:
    print_lines([str(call(rondel.plot, options))])


def _compare(options: Compare) -> None:
    print_lines([str(call(rondel.compare, options))])


COMMANDS = (
    Command("profile", "PATH", Profile, _profile),
    Command("plot", "PATH... [--out FILE]", Plot, _plot),
    Command("compare", "PATH...", Compare, _compare),
)
