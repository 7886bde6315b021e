"""The one exception that Rondel raises on purpose."""


class RondelError(Exception):
    """A sentence for the person who must act: what was asked, what is wrong, what would work.

    The command line prints it without a traceback; Python code can catch it by this one name.
    """
