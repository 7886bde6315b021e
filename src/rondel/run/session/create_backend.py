"""Where the copies of a run's plan are to run; what a backend needs is imported with it."""

from __future__ import annotations

from rondel.execution.backends.inline import Inline
from rondel.execution.backends.protocol import Backend
from rondel.plan.resources import resources_for
from rondel.run.setup.prepare import Setup


def create_backend(setup: Setup) -> Backend:
    """Where the copies of a run's plan are to run."""
    options, asked = setup.options, resources_for(setup.plan, setup.options.resources or "")
    if options.on == "inline":
        return Inline(deadline=options.deadline)
    if options.on == "threads":
        from rondel.execution.backends.threads import Threads

        return Threads(options.deadline)
    if options.on == "processes":
        from rondel.execution.backends.processes.backend import Processes

        return Processes(options.deadline, options.restarts)
    from rondel.execution.backends.ray.backend import Ray

    asked_for = asked if options.resources else None
    return Ray(options.address, asked_for, options.deadline, options.restarts)
