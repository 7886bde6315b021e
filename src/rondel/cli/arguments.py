"""Parses the words after a command by tyro; what it refuses becomes a sentence.

A whole number may be written as 1e5.
"""

from __future__ import annotations

import dataclasses
import io
import re
import typing
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from itertools import dropwhile, takewhile
from typing import Any

import tyro

from rondel.errors import RondelError
from rondel.formatting import closest_words

_CONFIG = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)
_WITH_EXPONENT = re.compile(r"\d+(\.\d+)?e\+?\d\d?$")
_ELSEWHERE = dict(  # names that other libraries use, and Rondel's
    pair.split("=")
    for pair in """
        batch-size=batch buffer-size=capacity clip-range=clip ent-coef=entropy-cost gamma=discount
        lr=learning-rate n-envs=lanes num-envs=lanes total-timesteps=steps vf-coef=value-cost
    """.split()
)
# what tyro says, and what we say
_REFUSALS = (
    (r"Error parsing (\S+): .*(?:int\(\)|INT) .*'(.*)'", "{0} must be an integer, got {1!r}."),
    (r"Error parsing (\S+): .*(?:float:|FLOAT) .*'(.*)'", "{0} must be a number, got {1!r}."),
    (r"Error parsing (\S+): .*arguments: \[(.*)\]", "{0} can't be {1}. {see}"),
    (r"Missing value for argument '(\S+)'", "{0} needs a value."),
    (r"invalid choice '(.*)' for argument '(.*)'.*\((.*)\)", "{1} must be one of {2}, got {0!r}."),
    (r"Missing from (.*): (\S+) ", "`{0}` needs {1}. {see}"),
    (r"Unrecognized options: (-[^\s,]+)", "There is no option {0}. {meant}"),
    (r"Unrecognized options: ([^\s,]+)", "`rondel {command}` takes no {0!r}. {see}"),
)


def parse(kind: Any, words: list[str], command: str) -> Any:
    """An instance of a dataclass. `--help` is printed, and ends the process."""
    shown, refused = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(shown), redirect_stderr(refused):
            return tyro.cli(kind, args=words, prog=f"rondel {command}", config=_CONFIG)
    except SystemExit as ended:
        if not ended.code:
            print(_without_none(shown.getvalue()), end="")
            raise
    said = refused.getvalue()
    if (written_out := _written_out(words, said)) != words:
        return parse(kind, written_out, command)
    raise RondelError(_sentence(said, [*_names(kind)], command)) from None


def _written_out(words: list[str], said: str) -> list[str]:
    """The words with 1e5 as 100000, behind the option that was refused."""
    flag, written = "", list(words)
    for i, word in enumerate(words):
        option, _, value = word.partition("=")
        flag = option if word.startswith("--") else flag
        if f"Error parsing {flag}:" in said and (number := _WITH_EXPONENT.match(value or word)):
            written[i] = word.replace(number[0], f"{float(number[0]):.0f}")
    return written


def _sentence(said: str, options: list[str], command: str) -> str:
    """What tyro said in the first part of its box, as a sentence."""
    lines = (line.strip("│| ") for line in said.splitlines()[1:])
    said = " ".join(takewhile(_is_text, dropwhile(lambda line: not _is_text(line), lines)))
    see = f"`rondel {command} --help` lists what it takes."
    for pattern, sentence in _REFUSALS:
        if found := re.match(pattern, said):
            name = found[1].removeprefix("--").partition("=")[0]
            elsewhere = _ELSEWHERE.get(name, "")
            near = elsewhere if elsewhere in options else closest_words(name, options)
            meant = f"Did you mean --{near}?" if near else see
            return sentence.format(*found.groups(), command=command, see=see, meant=meant)
    return f"{said} {see}"


def _is_text(line: str) -> bool:
    return line.strip("-─╰╯") != ""


def _names(kind: Any) -> Iterator[str]:
    """The options of a dataclass and of those in its fields."""
    for name, hint in typing.get_type_hints(kind).items():
        if dataclasses.is_dataclass(hint):
            yield from _names(hint)
        else:
            yield name.replace("_", "-")


def _without_none(text: str) -> str:
    """Help without None as a type and as a default: comments say what that means."""
    text = re.sub(r"\{None\}\|(\S+)", lambda found: found[1] + " " * 7, text)
    return re.sub(r"\(default:\s*(None)?\s*\)", lambda found: re.sub(r"\S", " ", found[0]), text)
