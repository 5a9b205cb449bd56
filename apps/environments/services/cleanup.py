"""What happens to environments that were created for a task."""

from apps.environments.models import Hosted
from apps.environments.services import lifecycle
from apps.environments.states import Wanted
from apps.environments.states.reasons import CAUSES, Reason
from apps.environments.transitions import Held
from fermi.jobs.spec import Cause

AFTERWARDS = ("delete", "stop", "keep")
_WANTED = {"delete": Wanted.DELETED, "stop": Wanted.STOPPED}


def finish_for_task(task_id: str) -> int:
    """Delete, stop or keep the environments of a task that has ended, once. Returns how many are left because another
    task holds them: call it again for these. Repeating it changes nothing."""
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
