"""What other apps may import from training: its rows, states and texts, its engines, and what can be asked of it.

The rows (`Task`, `Attempt`, `Node`, `Finding`, …) are for queries: only training writes them. An import contract
forbids other apps everything else of `apps.training`.
"""

from apps.training.core.checkpoint_choice import find_newest_checkpoint
from apps.training.core.code import rebuild_request
from apps.training.core.curves import CurvePart, CurveSummary, find_summary, read_curve
from apps.training.core.engine_access import (
    build_handle,
    filter_engine_scheduled,
    get_backend,
    list_clusters_with_queue,
    reveal_secrets,
)
from apps.training.core.facts import list_newest_facts
from apps.training.core.log_patterns import apply_patterns
from apps.training.core.metric_blocks import copy_points
from apps.training.core.metric_curves import Curve, CurveReader, Span
from apps.training.core.redaction import redact_request
from apps.training.core.release import list_current_holds, list_unbooked_usage
from apps.training.core.run_tokens import PREFIX as RUN_TOKEN_PREFIX
from apps.training.core.run_tokens import find_token_task, make_run_token
from apps.training.core.summaries import rebuild_summaries
from apps.training.core.tracked_values import record_tracked_parameters, record_tracked_values
from apps.training.core.tracking_server import find_platform_address
from apps.training.core.wakeups import enqueue_task, enqueue_tasks, enqueue_waiting_tasks
from apps.training.models import (
    Attempt,
    AttemptFacts,
    Finding,
    MetricPoint,
    MetricSummary,
    Node,
    Task,
    TaskMedia,
    TaskParameter,
    TraceExport,
)
from apps.training.presenters.selectors import select_brief_columns, serialize_brief
from apps.training.presenters.task_presenter import (
    REASON_COLUMNS,
    describe_common_reason,
    explain_task,
    serialize_batch,
    serialize_problem,
    serialize_reason,
    serialize_warning,
)
from apps.training.queue.node_health import get_failure_counts
from apps.training.reports.causes import summarize_causes
from apps.training.reports.telemetry import list_holders
from apps.training.reports.telemetry import read_task_series as read_task_telemetry
from apps.training.services.actions import clone_request, delete_task, find_task, stop_task
from apps.training.services.create import draft_request, retry_task, submit_request
from apps.training.services.pause import pause_task, resume_task
from apps.training.services.preview import PREVIEW_TASK_ID, TaskPreview, mask_secrets, preview_task, render_draft
from apps.training.states import ACTIVE_STATES, FINAL_STATES, STATES_WITH_ATTEMPT, TaskKind, TaskState
from apps.training.usage.report import UsageTotals, report_task_usage, sum_task_usage

__all__ = [
    "ACTIVE_STATES",
    "FINAL_STATES",
    "PREVIEW_TASK_ID",
    "REASON_COLUMNS",
    "RUN_TOKEN_PREFIX",
    "STATES_WITH_ATTEMPT",
    "Attempt",
    "AttemptFacts",
    "Curve",
    "CurvePart",
    "CurveReader",
    "CurveSummary",
    "Finding",
    "MetricPoint",
    "MetricSummary",
    "Node",
    "Span",
    "Task",
    "TaskKind",
    "TaskMedia",
    "TaskParameter",
    "TaskPreview",
    "TaskState",
    "TraceExport",
    "UsageTotals",
    "apply_patterns",
    "build_handle",
    "clone_request",
    "copy_points",
    "delete_task",
    "describe_common_reason",
    "draft_request",
    "enqueue_task",
    "enqueue_tasks",
    "enqueue_waiting_tasks",
    "explain_task",
    "filter_engine_scheduled",
    "find_newest_checkpoint",
    "find_platform_address",
    "find_summary",
    "find_task",
    "find_token_task",
    "get_backend",
    "get_failure_counts",
    "list_clusters_with_queue",
    "list_current_holds",
    "list_holders",
    "list_newest_facts",
    "list_unbooked_usage",
    "make_run_token",
    "mask_secrets",
    "pause_task",
    "preview_task",
    "read_curve",
    "read_task_telemetry",
    "rebuild_request",
    "rebuild_summaries",
    "record_tracked_parameters",
    "record_tracked_values",
    "redact_request",
    "render_draft",
    "report_task_usage",
    "resume_task",
    "retry_task",
    "reveal_secrets",
    "select_brief_columns",
    "serialize_batch",
    "serialize_brief",
    "serialize_problem",
    "serialize_reason",
    "serialize_warning",
    "stop_task",
    "submit_request",
    "sum_task_usage",
    "summarize_causes",
]
