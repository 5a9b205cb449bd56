"""Records files that ranks wrote inside of environments and that the platform does not collect, as findings."""

from apps.training.core import findings
from apps.training.core.engine_access import backend_for, handle_for
from apps.training.models import Task
from fermi.diagnosis import Finding, Level, Where


def note(task: Task, attempt: int) -> None:
    """Record the files that are left out now as findings of the attempt. Raises BackendError."""
    if not task.inside:
        return
    rows = []
    for one in backend_for(task.cluster).left_out(handle_for(task, attempt)):
        node_rank = one.params["nodeRank"]
        key = f"{node_rank}/{one.params['path']}"[-100:]
        rows.append(Finding(one.code, Level.WARN, one.params, where=[Where(None, node_rank)], key=key))
    findings.note(task.pk, attempt, rows)
