"""A new task from what another was asked with, read the way a request is read."""

from apps.accounts.models import User
from apps.common.requests import parse
from apps.training.api.serializers import TaskCreateRequest
from apps.training.models import Task
from apps.training.services import steer
from apps.training.services.create import create


def retry(user: User, task_id: str) -> Task:
    """Resumes from the newest checkpoint. Raises ApiError when the task is not one to retry."""
    again = steer.again(user, task_id)
    return create(user, parse(TaskCreateRequest, again), again)
