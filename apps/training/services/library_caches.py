"""Cleans the projects' caches of libraries, apart from what running tasks may read."""

from django.db.models import Min

from apps.files.services import library_caches
from apps.training.models import Attempt


def clean_caches(project_id: str = "", keep_bytes: int | None = None) -> None:
    """Clean the caches of all projects, or of one; `keep_bytes`: instead of the project's limit."""
    library_caches.clean_caches(find_busy_since, project_id, keep_bytes)


def find_busy_since(project_id: str) -> float | None:
    """Return when the oldest attempt of the project began of which something may still run, in unix seconds; None where
    there is none."""
    alive = Attempt.objects.filter(ended_at=None, task__project=project_id)
    began = alive.aggregate(began=Min("created_at"))["began"]
    return began.timestamp() if began else None
