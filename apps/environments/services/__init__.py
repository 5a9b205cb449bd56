"""Operations on managed environments, for users and tasks."""

from apps.environments.services.create import create_environment
from apps.environments.services.lifecycle import finish_for_task
from apps.environments.validation import CreateRequest, ValidatedEnvironment, validate_environments

__all__ = ["CreateRequest", "ValidatedEnvironment", "create_environment", "finish_for_task", "validate_environments"]
