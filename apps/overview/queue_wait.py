"""The waiting tasks: how many, why, and for how long."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Min, Q
from django.db.models.fields.json import KT

from apps.overview.scope import Scope
from apps.training.public import REASON_COLUMNS, TaskState, describe_common_reason, explain_task, serialize_reason

WAITING_STATES = (TaskState.INITIALIZING, TaskState.QUEUED)
AGE_LIMITS_SECONDS = (60, 600, 3600, 6 * 3600, 86400)
"""Seconds: upper limits of the age groups; the last group has none."""
MAX_OLDEST = 10
MAX_REASONS = 30


def summarize_queue(scope: Scope, moment: datetime) -> dict[str, Any]:
    """Return the summary of waiting tasks."""
    rows = scope.tasks().filter(state__in=WAITING_STATES).order_by()
    edges = [moment - timedelta(seconds=seconds) for seconds in AGE_LIMITS_SECONDS]
    groups = {
        f"age_{number}": Count("pk", filter=_build_age_condition(edges, number))
        for number in range(len(AGE_LIMITS_SECONDS) + 1)
    }
    wanted = KT("reason_params__wanted")
    counts: Any = rows.values("reason", wanted=wanted).annotate(
        count=Count("pk"), since=Min("state_since"), one=Min("pk"), **groups
    )
    found = sorted(counts, key=lambda row: (-row["count"], row["reason"], row["wanted"] or ""))
    shown = found[:MAX_REASONS]
    named = rows.filter(pk__in=[row["one"] for row in shown if row["reason"]])
    examples = dict(named.values_list("pk", "reason_params"))
    oldest = rows.order_by("state_since", "pk").values(
        "id", "name", "owner__username", "project_id", "project__name", "state", "state_since", "total_gpus",
        *REASON_COLUMNS,
    )[:MAX_OLDEST]  # fmt: skip
    return {
        "total": sum(row["count"] for row in found),
        "since": min((row["since"] for row in found), default=None),
        "ages": [
            {"upTo": upto, "count": sum(row[f"age_{number}"] for row in found)}
            for number, upto in enumerate((*AGE_LIMITS_SECONDS, None))
        ],
        "reasons": [
            {
                "code": row["reason"],
                "cause": ":".join(filter(None, (row["reason"], row["wanted"]))),
                "message": _render_reason(row, examples.get(row["one"], {})),
                "count": row["count"],
                "since": row["since"],
            }
            for row in shown
        ],
        "reasonsLeftOut": len(found) - len(shown),
        "oldest": [
            {
                "taskId": row["id"],
                "name": row["name"],
                "owner": row["owner__username"],
                "projectId": row["project_id"],
                "projectName": row["project__name"],
                "status": row["state"],
                "gpus": row["total_gpus"],
                "since": row["state_since"],
                "reason": explain_task(row),
            }
            for row in oldest
        ],
    }


def _render_reason(row: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """Return the text of what the tasks have in common; of a single task all that is known."""
    if row["count"] == 1:
        return (serialize_reason(row["reason"], params) or {"message": ""})["message"]
    wanted = {"wanted": row["wanted"]} if row["wanted"] else {}
    return describe_common_reason(row["reason"], params, wanted) if row["reason"] else ""


def _build_age_condition(edges: list[datetime], number: int) -> Q:
    younger = Q(state_since__gt=edges[number]) if number < len(edges) else Q()
    return younger & (Q(state_since__lte=edges[number - 1]) if number else Q())
