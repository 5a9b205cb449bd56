"""Records files that ranks wrote inside of environments and that the platform does not collect, as findings."""

from apps.training.core import findings
from apps.training.core.engine_access import build_handle, get_backend
from apps.training.models import Task
from fermi.diagnosis import Finding, Level, Where


def record_uncollected_files(task: Task, attempt: int) -> None:
    """Record the files that are left out now as findings of the attempt. Raises BackendError."""
    if not task.inside:
        return
    rows = []
    for one in get_backend(task.cluster).left_out(build_handle(task, attempt)):
        node_rank = one.params["nodeRank"]
        key = f"{node_rank}/{one.params['path']}"[-100:]
        rows.append(Finding(one.code, Level.WARN, one.params, where=[Where(None, node_rank)], key=key))
    findings.record_findings(task.pk, attempt, rows)
