"""Checks whether a cluster's connection is described correctly. Each engine's `check` module has the rules of its own
engine."""

from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator, ValidationError

from fermi.jobs.spec import Problem
from fermi.planning import plugins


def find_connection_problems(backend: str, connection: Mapping[str, Any]) -> list[Problem]:
    """Return what is wrong with a connection as such. Raises UnknownNameError for an unknown engine."""
    check = plugins.get_check(backend)
    errors = Draft202012Validator(check.CONNECTION).iter_errors(connection)
    return [problem for error in errors for problem in _describe_error(error)] or check.contradictions(connection)


def _describe_error(error: ValidationError) -> Iterator[Problem]:
    path = ".".join(["connection", *map(str, error.absolute_path)])
    if error.validator == "additionalProperties" and isinstance(error.schema, Mapping):
        known = error.schema["properties"]
        for name in sorted(error.instance.keys() - known.keys()):  # type: ignore[union-attr]  # an object's rule
            yield Problem(f"{path}.{name}", "CONNECTION_KEY_UNKNOWN", {"name": name, "allowed": ", ".join(known)})
    else:
        yield Problem(path, "CONNECTION_INVALID", {"found": error.instance, "why": error.message})
