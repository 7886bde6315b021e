"""What Rondel raises on purpose."""


class RondelError(Exception):
    """A sentence for the person who must act: what was asked, what is wrong, what would work.

    The command line prints it without a traceback; Python code can catch it by this one name.
    """


class OwnCodeError(RondelError):
    """Code of the user's own raised; `__cause__` is its exception, traceback and all."""


def at_least(minimum: float, **fields: float | None) -> None:
    """Refuse fields that are below `minimum`; None is no number and passes."""
    for name, value in fields.items():
        if value is not None and not value >= minimum:
            raise RondelError(f"{name}={value} can't work: {minimum} or more would.")


def from_zero_to_one(**fields: float) -> None:
    """Refuse fields that are no share."""
    for name, value in fields.items():
        if not 0.0 <= value <= 1.0:
            raise RondelError(f"{name}={value} can't work: a number from 0 to 1 would.")
