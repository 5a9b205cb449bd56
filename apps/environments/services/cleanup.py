"""What happens to environments that were created for a task."""

from apps.environments.models import Hosted
from apps.environments.services import lifecycle
from apps.environments.states import DesiredState
from apps.environments.states.reasons import CAUSES, EnvironmentReason
from apps.environments.transitions import EnvironmentInUseError
from fermi.jobs.spec import Cause

AFTERWARDS_CHOICES = ("delete", "stop", "keep")
_DESIRED_STATES = {"delete": DesiredState.DELETED, "stop": DesiredState.STOPPED}


def finish_for_task(task_id: str) -> int:
    """Delete, stop or keep the environments of a task that has ended, once. Returns how many are left because another
    task holds them: call it again for these. Repeating it changes nothing."""
    left = 0
    cause = Cause(EnvironmentReason.TASK_ENDED, {"task": task_id}, asked=CAUSES[EnvironmentReason.TASK_ENDED].asked)
    for hosted in Hosted.objects.filter(task=task_id, afterwards__in=AFTERWARDS_CHOICES):
        wanted = _DESIRED_STATES.get(hosted.afterwards)
        if wanted is None:
            Hosted.objects.filter(pk=hosted.pk).update(afterwards="")
            continue
        try:
            lifecycle.retire_environment(hosted, wanted, cause)
        except EnvironmentInUseError:
            left += 1
    return left
