"""Stores the parameters of tasks, by which lists of tasks are searched."""

from collections.abc import Mapping

from apps.training.models import TaskParameter
from fermi.jobs.credentials import looks_secret
from fermi.metrics.parameters import MAX_PARAMETERS, ParameterValue, format_value


def store_parameters(
    task: str, found: Mapping[str, ParameterValue], source: str, *, replaces: bool = True, is_new: bool = False
) -> None:
    """Store parameters of a task, at most MAX_PARAMETERS, and none that look like secrets. `replaces`: values that
    another source has reported are replaced. `is_new`: the task has none yet."""
    if not found:
        return
    rows = {} if is_new else {row.name: row for row in TaskParameter.objects.filter(task=task)}
    changed = []
    for name, value in found.items():
        text, number = format_value(value)
        known = rows.get(name)
        if known is None and len(rows) >= MAX_PARAMETERS:
            continue
        if looks_secret(name.replace(".", "_"), text) or (known and not replaces):
            continue
        if known is None or (known.value, known.source) != (text, source):
            rows[name] = TaskParameter(task_id=task, name=name, value=text, number=number, source=source)
            changed.append(rows[name])
    TaskParameter.objects.bulk_create(
        changed, update_conflicts=True, unique_fields=["task", "name"], update_fields=["value", "number", "source"]
    )
