"""One answer about a task, although the task goes on while it is read."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from apps.accounts.models import User
from apps.common.clock import now
from apps.training.models import Task
from apps.training.presenters import selectors
from apps.training.states import FINAL_STATES, TaskState
from fermi.jobs.spec import Entrypoint
from tests import goldens

pytestmark = [pytest.mark.database, pytest.mark.django_db]


@pytest.mark.parametrize("query", range(2))
def test_an_ended_task_never_shows_a_running_attempt(query: int, task: Task, user: User) -> None:
    """Whichever query it ends after. A script that waits for the end reads the attempt then."""
    task.spec = goldens.job("env-003", entrypoint=Entrypoint("train.py", ())).to_json()
    task.save()
    left = query

    def ends(execute: Callable[..., Any], *order: Any) -> Any:
        nonlocal left
        found = execute(*order)
        if left == 0:
            left = -1
            task.attempts.update(ended_at=now())
            Task.objects.filter(pk=task.pk).update(state=TaskState.SUCCEEDED, ended_at=now())
        left -= 1
        return found

    with connection.execute_wrapper(ends):
        seen = selectors.get_task_detail(user, task.pk)
    assert seen["status"] not in FINAL_STATES or seen["attempts"][-1]["endedAt"]
