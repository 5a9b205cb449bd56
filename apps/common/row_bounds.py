"""Limits of the rows that one owner may create, so that no user fills the database."""

from typing import Any

from django.db.models import QuerySet

from apps.common.errors import ApiError

MAX_ROWS = {
    "code-fetches": 50,  # of a person, under way
    "datasets": 2_000,  # of a project
    "dataset-versions": 1_000,  # of a dataset
    "doors": 500,  # of a person: tickets and browsers that may still enter
    "environment-templates": 500,  # of a project
    "environments": 5_000,  # of a project, those that are gone not counted
    "identity-providers": 50,  # of the platform
    "installations": 200,  # of a person, under way: packages into environments
    "exchange-rules": 100,  # of a project
    "files": 1_000_000,  # of a project, with its folders
    "join-tokens": 100,  # of a person
    "mlflow-experiments": 1_000,  # of a project
    "mlflow-model-versions": 10_000,  # of a registered model
    "mlflow-models": 2_000,  # of a task: models that its script logs
    "mlflow-registered-models": 2_000,  # of a project
    "mlflow-runs": 2_000,  # of a task
    "models": 2_000,  # of a project
    "notice-channels": 50,  # of a person, a project or the platform
    "notice-rules": 100,  # of a person, a project or the platform
    "notice-tests": 50,  # of a channel; the oldest give way
    "oauth-grants": 100,  # of a person
    "proposals": 50,  # of an agent's token, that are open
    "reservations": 500,  # made by a person, that have not ended
    "role-rules": 500,  # of the platform
    "run-views": 200,  # of a person, and of a project
    "saved-templates": 500,  # of a project, or of the platform
    "saved-views": 100,  # of a person
    "schedules": 200,  # of a project
    "secrets": 500,  # of a project
    "service-accounts": 100,  # of a project
    "sweeps": 2_000,  # of a project
    "tasks": 20_000,  # of a person, made within a day and not ended: trainings, pre-flight tests and drills each
    "worker-groups": 500,  # of a project
    "workers": 20_000,  # of a project
}
"""By kind, named as in the API. Limits of one request are in `bounds`."""


def check_row_limit(kind: str, rows: QuerySet[Any, Any], new_rows: int = 1) -> None:
    """Raise ApiError 409 if `new_rows` more rows would exceed the limit in MAX_ROWS. `rows`: those that the owner has.
    Of two requests at the same moment both may pass."""
    high = MAX_ROWS[kind]
    if new_rows > high or rows.order_by()[max(0, high - new_rows) :].exists():
        raise make_limit_error(kind)


def make_limit_error(kind: str) -> ApiError:
    return ApiError(409, "ROWS_FULL", kind=kind, high=MAX_ROWS[kind])
