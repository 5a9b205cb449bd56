"""What becomes of environments that were made for a task."""

from apps.environments.models import Hosted
from apps.environments.services import lifecycle
from apps.environments.states import Wanted
from apps.environments.states.reasons import CAUSES, Reason
from apps.environments.transitions import Held
from fermi.jobs.spec import Cause

AFTERWARDS = ("delete", "stop", "keep")
_WANTED = {"delete": Wanted.DELETED, "stop": Wanted.STOPPED}


def finish_for_task(task_id: str) -> int:
    """The task has ended: does with its environments what was said, once. How many are left, because another task holds
    them meanwhile: to be called again. Called again it changes nothing."""
    left = 0
    cause = Cause(Reason.TASK_ENDED, {"task": task_id}, asked=CAUSES[Reason.TASK_ENDED].asked)
    for hosted in Hosted.objects.filter(task=task_id, afterwards__in=AFTERWARDS):
        wanted = _WANTED.get(hosted.afterwards)
        if wanted is None:
            Hosted.objects.filter(pk=hosted.pk).update(afterwards="")
            continue
        try:
            lifecycle.retire(hosted, wanted, cause)
        except Held:
            left += 1
    return left
