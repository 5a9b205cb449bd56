"""Telemetry of a worker, as the API returns it."""

from collections.abc import Mapping
from typing import Any

from apps.accounts import access
from apps.accounts.models import User
from apps.telemetry import presenters, subjects
from apps.telemetry.presenters import Place
from apps.training.reports.telemetry import holders
from apps.workers.models import Worker
from fermi.telemetry.metrics import DISK, NETWORK, NODE


def of_worker(user: User, worker_id: str, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return the series of its GPU and rank and of its host, and which tasks used it."""
    worker = access.get(Worker.objects.select_related("environment"), user, worker_id)
    asked = presenters.asked(query)
    places, tasks = {subjects.worker(worker.pk): Place(None)}, []
    if worker.environment:
        places[subjects.environment(worker.environment.pk)] = Place(None, only=(NODE, NETWORK, DISK))
        tasks = holders(worker.environment, user, asked.begins, asked.ends)
    return {**presenters.shown(asked, places), "tasks": tasks}
