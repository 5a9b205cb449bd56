"""The whole overview."""

from datetime import datetime
from typing import Any

from django.db.models import Count

from apps.overview import capacity, failures, goodput, hourly_use, machines, queue_wait
from apps.overview.scope import Scope
from apps.training.public import TaskState


def build_overview(scope: Scope, moment: datetime) -> dict[str, Any]:
    """Return the overview. The number of queries does not depend on the amount of data."""
    counts = dict(scope.tasks().order_by().values_list("state").annotate(Count("state")))
    return {
        "at": moment,
        "all": scope.all,
        "tasks": {state.value: counts.get(state, 0) for state in TaskState},
        **machines.count_gpus(machines.list_machines(scope, moment)),
        "utilisation": hourly_use.read_utilisation(scope, moment),
        "queue": queue_wait.summarize_queue(scope, moment),
        "failures": failures.summarize_failures(scope, moment),
        "goodput": goodput.summarize_goodput(scope, moment),
        "capacity": capacity.list_capacity_events(scope, moment),
    }
