"""The backend that a run asks for."""

from __future__ import annotations

from rondel.execution.backends.protocol import Backend
from rondel.execution.backends.registry import BackendOptions, find
from rondel.plan.resources import resources_for
from rondel.run.setup.prepare import Setup


def create_backend(setup: Setup) -> Backend:
    """Where the copies of a run's plan will run; what the backend needs is imported with it."""
    options = setup.options
    asked = resources_for(setup.plan, options.resources) if options.resources else None
    given = BackendOptions(options.deadline, options.restarts, asked, options.address)
    return find(options.on).create(given)
