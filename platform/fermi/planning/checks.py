"""Checks whether a cluster's connection is described correctly. Each engine's `check` module has the rules of its own
engine."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fermi.jobs import json_shape
from fermi.jobs.spec import Problem
from fermi.messages import NestedText
from fermi.planning import plugins
from fermi.schema import values


def find_connection_problems(backend: str, connection: Mapping[str, Any]) -> list[Problem]:
    """Return what is wrong with a connection as such. Raises UnknownNameError for an unknown engine."""
    check = plugins.get_check(backend)
    found = json_shape.find_problems(check.CONNECTION, connection, "connection")
    return [_describe_problem(problem) for problem in found] or check.contradictions(connection)


def _describe_problem(problem: Problem) -> Problem:
    if problem.code == "UNKNOWN_FIELD":
        return replace(problem, code="CONNECTION_KEY_UNKNOWN")
    found = problem.params.get("found", problem.field.rpartition(".")[2])
    why = NestedText(problem.code, problem.params)
    if problem.code == "FIELD_CHOICE":  # the choices stand in its hint, which has no place here
        choices = values.describe_choices(problem.params["allowed"].split(", "))
        why = NestedText("NOT_WITHIN", {"found": found, "expected": choices})
    return Problem(problem.field, "CONNECTION_INVALID", {"found": found, "why": why})
