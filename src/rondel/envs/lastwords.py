"""Says what an environment was doing if it takes this process along: a crash, or os._exit.

Nothing can be said from inside then. So a shell, which starts in a few milliseconds, is told
what is tried out before each try, and says the last of it if it hears no more. An empty line is
the end: that it hears no more would be late news where an environment has forked.
"""

from __future__ import annotations

import faulthandler
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_SHELL = (
    'while IFS= read -r said; do [ -n "$said" ] || exit 0; last=$said; done; '
    'printf "%s\\n" "$last" >&2'
)
_LONGEST = 300  # letters of an action


class _Words:
    """The shell, which is started with the first try."""

    def __init__(self) -> None:
        self._shell: subprocess.Popen[bytes] | None = None

    def say(self, text: str) -> None:
        if self._shell is None:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _SHELL], stdin=subprocess.PIPE, bufsize=0
            )
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{text}\n".encode())

    def end(self) -> None:
        """There is nothing to be said."""
        if self._shell is not None:
            with suppress(OSError):
                self.say("")
            with suppress(OSError):
                self._shell.communicate()


_words: _Words | None = None


@contextmanager
def last_words() -> Iterator[None]:
    """What is tried out inside is told of if this process ends there, with where it crashed."""
    global _words
    outer, mine = _words, _Words()
    is_silent = not faulthandler.is_enabled()
    try:
        _words = mine
        with suppress(OSError):  # nobody could read it
            if is_silent:
                faulthandler.enable(2, all_threads=False)
        yield
    finally:
        _words = outer
        if is_silent:
            faulthandler.disable()
        mine.end()


def trying(env: str, what: str) -> None:
    """An environment does this next, such as "step(3)"."""
    if _words is None:
        return
    doing = " ".join(what.split())
    doing = doing if len(doing) <= _LONGEST else f"{doing[:_LONGEST]}…"
    with suppress(OSError):  # there is no shell here, or Ctrl-C has ended it
        _words.say(
            f"rondel: This process ended while {env} was tried out, in {doing}. If nobody killed "
            "it, the environment did: it crashed there, or called os._exit."
        )
