"""Move tasks from state to state, as the reconciler does: `python -m bench.state_changes STATE TASK…`. Prints when each
move was recorded, in unix seconds."""

import json
import sys

import django

django.setup()

from apps.training.core import transitions  # noqa: E402
from apps.training.models import Event, Task  # noqa: E402
from apps.training.states import TaskState  # noqa: E402


def main(state: str, *tasks: str) -> None:
    for task in Task.objects.filter(pk__in=tasks):
        transitions.change_state(task, TaskState(state))
    events = Event.objects.filter(task__in=tasks, code=f"STATE_{state.upper()}")
    print(json.dumps({key: at.timestamp() for key, at in events.values_list("task", "at")}))


if __name__ == "__main__":
    main(*sys.argv[1:])
