"""What people, and tasks, ask of environments that the platform makes."""

from apps.environments.building import Asked, Draft, drafts
from apps.environments.services.finishing import finish_for_task
from apps.environments.services.making import make

__all__ = ["Asked", "Draft", "drafts", "finish_for_task", "make"]
