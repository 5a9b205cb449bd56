"""Operations on managed environments, for users and tasks."""

from apps.environments.services.cleanup import finish_for_task
from apps.environments.services.create import make
from apps.environments.validation import Asked, Draft, drafts

__all__ = ["Asked", "Draft", "drafts", "finish_for_task", "make"]
