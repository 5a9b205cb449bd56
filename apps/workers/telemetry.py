"""Telemetry of a worker, as the API returns it."""

from collections.abc import Mapping
from typing import Any

from apps.accounts import access
from apps.accounts.models import User
from apps.telemetry import presenters, subjects
from apps.telemetry.presenters import SeriesTarget
from apps.training.public import list_holders
from apps.workers.models import Worker
from fermi.telemetry.metrics import DISK, NETWORK, NODE


def serialize_worker_telemetry(user: User, worker_id: str, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return the series of its GPU and rank and of its host, and which tasks used it."""
    worker = access.get_object(Worker.objects.select_related("environment"), user, worker_id)
    asked = presenters.parse_query(query)
    places, tasks = {subjects.make_worker_subject(worker.pk): SeriesTarget(None)}, []
    if worker.environment:
        places[subjects.make_environment_subject(worker.environment.pk)] = SeriesTarget(
            None, only=(NODE, NETWORK, DISK)
        )
        tasks = list_holders(worker.environment, user, asked.begins, asked.ends)
    return {**presenters.serialize_series(asked, places), "tasks": tasks}
