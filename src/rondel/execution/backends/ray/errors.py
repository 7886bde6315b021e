"""Translates the errors of Ray into ours."""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayError, RayTaskError

from rondel.execution.backends.protocol import Lost, Unresponsive
from rondel.execution.backends.ray.worker import OutOfTurn
from rondel.execution.backends.recovery.policy import because
from rondel.execution.backends.wire.remote_errors import Elsewhere


class ActorDied(Lost):
    """An actor is gone."""

    def __init__(self, sentence: str, actor: str) -> None:
        super().__init__(sentence)
        self.actor = actor  # its id


class ObjectLost(Lost):
    """A request did not reach its copy, because of what became of another copy or a node."""


def fault_in(error: RayError, names: Mapping[str, str]) -> Elsewhere | Lost:
    """The cause of an error of Ray's; `names` are what people call the actors, by id."""
    cause = _cause(error)
    if isinstance(cause, Elsewhere):
        return cause
    if isinstance(cause, ActorDiedError) and cause.actor_id in names:
        return ActorDied(f"{names[cause.actor_id]} died: {_reason(str(cause))}", cause.actor_id)
    return ObjectLost(f"Ray failed: {cause}")


def first_missing(error: RayError) -> int | None:
    """The number of the first request that never reached the copy, if that is the error."""
    cause = _cause(error)
    return cause.at if isinstance(cause, OutOfTurn) else None


def _cause(error: RayError) -> Any:
    cause: Any = error
    while isinstance(cause, RayTaskError):
        cause = cause.cause
    return cause


def _reason(text: str) -> str:
    """Why the actor died, out of Ray's long message."""
    because = re.search(r"The actor is dead because (.*)", text, re.DOTALL)
    said = (because[1] if because else text).partition("Some common causes include")[0].strip()
    return re.sub(r"Worker exit type: \w+ Worker exit detail: ", "", said)


def outcome_of(ref: Any) -> Any:
    """The value of a call that is over, or its RayError."""
    try:
        return ray.get(ref)
    except RayError as error:
        return error


def fault_of(ref: Any, names: Mapping[str, str]) -> Elsewhere | Lost | None:
    """The cause of a failed call; None if it did not fail."""
    outcome = outcome_of(ref)
    return fault_in(outcome, names) if isinstance(outcome, RayError) else None


def how_of(death: BaseException) -> str:
    """How a copy ended, to follow its name: "died: its worker process has died"."""
    if isinstance(death, Unresponsive):
        return because(str(death))
    return f"died: {str(death).partition(' died: ')[2] or death}".splitlines()[0].rstrip(".")
