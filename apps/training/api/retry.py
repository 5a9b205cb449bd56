"""New tasks from requests that do not come from outside, read the way a request is read."""

from collections.abc import Mapping
from typing import Any

from apps.accounts.models import User
from apps.common.requests import parse
from apps.training.api.serializers import TaskCreateRequest
from apps.training.models import Task
from apps.training.services import actions
from apps.training.services.build import Draft, build
from apps.training.services.create import create
from apps.training.services.preview import TASK


def retry(user: User, task_id: str) -> Task:
    """Resumes from the newest checkpoint. Raises ApiError when the task is not one to retry."""
    return submit(user, actions.again(user, task_id))


def submit(user: User, request: Mapping[str, Any]) -> Task:
    return create(user, parse(TaskCreateRequest, request), request)


def draft(user: User, request: Mapping[str, Any]) -> Draft:
    """What `submit` would run, with everything that is wrong with it."""
    return build(user, parse(TaskCreateRequest, request), request, TASK)
