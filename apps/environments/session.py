"""Sessions with `fermi.inside` in an environment, on any engine."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from apps.clusters import selectors
from apps.clusters.models import DevEnvironment
from fermi.engines.inside.session import InsideSession
from fermi.jobs.errors import BackendError, UnknownNameError
from fermi.planning import plugins

log = logging.getLogger(__name__)

MAX_TEXT_LENGTH = 500


@contextmanager
def open_session(environment: DevEnvironment) -> Iterator[InsideSession]:
    """Enter the environment and yield the session; load the environment with its cluster and zone. Takes seconds.
    Raises BackendError, also for requests within the block, with the environment's name."""
    try:
        if problem := selectors.find_obstacle(environment.name, environment.status, cordoned=False):
            raise BackendError(problem.code, permanent=True, **problem.params)
        backend = plugins.get_backend(environment.cluster.backend, selectors.build_connection(environment.cluster))
        with backend.enter(selectors.build_node(environment)) as entered:
            yield entered
    except BackendError as error:
        error.params.setdefault("environment", environment.name)
        raise
    except UnknownNameError as error:
        raise BackendError(error.code, permanent=True, environment=environment.name, **error.params) from error


def run_in_session(environment: DevEnvironment, question: Callable[[InsideSession], dict[str, Any]]) -> dict[str, Any]:
    """Return what `question` finds in a session, and `error` as rows store it: why it found nothing, or None. Load the
    environment as for `open_session`. Never raises."""
    try:
        with open_session(environment) as entered:
            return {"error": None, **question(entered)}
    except BackendError as error:
        return {"error": describe_error(error)}
    except Exception as error:
        if not isinstance(error, ValueError):  # which an answer that makes no sense is
            log.exception("%s could not be asked", environment.pk)
        return {"error": describe_unexpected(environment, error)}


def describe_error(error: BackendError) -> dict[str, Any]:
    """Return the error as rows store it: {"code": …, params…}."""
    plain = {
        name: value if isinstance(value, int | float | None) else str(value)[:MAX_TEXT_LENGTH]
        for name, value in error.params.items()
    }
    return {**plain, "code": error.code}


def describe_unexpected(environment: DevEnvironment, error: Exception) -> dict[str, Any]:
    """Return an unexpected error as rows store it."""
    why = f"{type(error).__name__}: {error}"[:MAX_TEXT_LENGTH]
    return {"code": "INSIDE_SILENT", "environment": environment.name, "why": why}
