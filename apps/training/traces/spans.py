"""Builds the spans of a task's trace from what is stored of it: the same spans, whichever process builds them.

training task ─┬─ request ─── check, store           its caller's `traceparent` is the parent
               ├─ prepare                            its dataset
               ├─ queue                              of each attempt: until it has its environments
               └─ attempt ─┬─ plan, submit
                           ├─ start ──── node ──── rank
                           ├─ first step
                           └─ run, end
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from apps.common.clock import now
from apps.common.tracing import Span, TraceContext
from apps.training.core import trace_context
from apps.training.core.engine_access import build_cause
from apps.training.core.task_store import INITIAL_STATES
from apps.training.models import Attempt, Task, TracePart
from apps.training.states import TaskKind, TaskState
from apps.training.states.reasons import TaskReason

MAX_FIRST_STEP_WAIT = timedelta(minutes=10)
"""How long a start waits for its first step. A step that comes later is exported with the attempt's end."""
MAX_RANKS = 1024
"""Most ranks of an attempt that get spans of their own; `fermi.ranks` counts all."""
CULPRIT_ATTRIBUTES = {"failed_rank": "rank", "failed_node_rank": "nodeRank", "failed_node": "node"}
"""Attributes of a failed attempt's span, and the parameters of its cause that they come from."""


@dataclass(frozen=True, slots=True)
class TaskTimeline:
    """A task with its states, oldest first, and since when it was in each."""

    task: Task
    states: list[tuple[datetime, str]]

    @classmethod
    def from_task(cls, task: Task) -> Self:
        """Return the timeline of the task, from its events."""
        rows = task.events.filter(kind="state", code__startswith="STATE_").order_by("pk").values_list("at", "code")
        moved = [(at, code.removeprefix("STATE_").lower()) for at, code in rows]
        return cls(task, [(task.created_at, INITIAL_STATES[TaskKind(task.kind)]), *moved])

    def span(
        self,
        name: str,
        above: TraceContext,
        times: tuple[datetime, datetime],
        *key: object,
        error: str = "",
        **about: Any,
    ) -> Span:
        """Return a span of the task. `key`: what distinguishes it from others of the same name."""
        return Span(
            name,
            trace_context.build_span_context(self.task, *key, name),
            above,
            *times,
            self.about(error, **about),
            error,
        )

    def about(self, error: str, **more: Any) -> dict[str, Any]:
        """Return the attributes of a span, without empty ones."""
        task = self.task
        known = {"task_id": task.pk, "framework": task.framework, "backend": task.cluster.backend, "cause": error}
        return {f"fermi.{name}": value for name, value in {**known, **more}.items() if value not in (None, "")}

    def last(self, state: TaskState, before: datetime) -> datetime | None:
        """Return when the task last entered `state`, up to `before`; None if it had not."""
        return max((at for at, found in self.states if found == state and at <= before), default=None)

    def since(self, state: TaskState, moment: datetime) -> datetime | None:
        """Return when the task first entered `state`, from `moment` on; None if it has not."""
        return next((at for at, found in self.states if found == state and at >= moment), None)


def build_spans(task: Task, part: str, attempt: Attempt | None) -> list[Span]:
    """Return the spans that are complete once the part is. Each belongs to one part only."""
    story = TaskTimeline.from_task(task)
    match part:
        case TracePart.CREATED:
            return list(_build_request_spans(story))
        case TracePart.FINISHED:
            return list(_build_task_spans(story))
    assert attempt is not None
    return list((_build_start_spans if part == TracePart.STARTED else _build_end_spans)(story, attempt))


def is_part_complete(task: Task, part: str, attempt: Attempt | None) -> bool:
    """Return True if all spans of the part can be built. A start waits for its first step, for MAX_FIRST_STEP_WAIT."""
    if part != TracePart.STARTED or attempt is None or attempt.ended_at or attempt.running_at is None:
        return True
    return now() - attempt.running_at > MAX_FIRST_STEP_WAIT or _find_first_step(task, attempt) is not None


def _build_request_spans(story: TaskTimeline) -> Iterator[Span]:
    task, came = story.task, story.task.trace
    if "receivedAt" not in came:
        return
    received, checked, stored = _to_datetime(came["receivedAt"]), _to_datetime(came["checkedAt"]), task.created_at
    request = story.span("request", trace_context.build_task_context(task), (received, stored))
    yield request
    yield story.span("check", request.context, (received, checked))
    yield story.span("store", request.context, (checked, stored))


def _build_task_spans(story: TaskTimeline) -> Iterator[Span]:
    task = story.task
    ends, next_attempt = task.ended_at or now(), task.attempt + 1
    waited = story.last(TaskState.QUEUED, ends)
    if waited and not story.since(TaskState.STARTING, waited):
        yield story.span(
            "queue", trace_context.build_task_context(task), (waited, ends), next_attempt, attempt=next_attempt
        )
    failed = task.reason if task.state == TaskState.FAILED else ""
    about = story.about(
        failed, state=task.state, reason=task.reason, name=task.name, project=task.project_id,
        attempts=task.attempt, nodes=task.node_count, ranks=task.world_size,
    )  # fmt: skip
    began = _to_datetime(task.trace["receivedAt"]) if "receivedAt" in task.trace else task.created_at
    yield Span(
        f"{task.kind} task",
        trace_context.build_task_context(task),
        trace_context.get_parent_context(task),
        began,
        ends,
        about,
        failed,
    )


def _build_start_spans(story: TaskTimeline, attempt: Attempt) -> Iterator[Span]:
    """Yield the spans of an attempt until its ranks have started."""
    task, number, root = story.task, attempt.number, trace_context.build_task_context(story.task)
    above = trace_context.build_span_context(task, number, "attempt")
    prepares = number == 1 and story.states[0][1] == TaskState.INITIALIZING
    if prepares and (queued := story.since(TaskState.QUEUED, task.created_at)):
        yield story.span("prepare", root, (task.created_at, queued))
    if waited := story.last(TaskState.QUEUED, attempt.created_at):
        yield story.span("queue", root, (waited, attempt.created_at), number, attempt=number)
    planned = story.since(TaskState.STARTING, attempt.created_at) or attempt.created_at
    yield story.span("plan", above, (attempt.created_at, planned), number, attempt=number)
    if attempt.submitted_at:
        yield story.span("submit", above, (planned, attempt.submitted_at), number, attempt=number)
    times = attempt.submitted_at or planned, attempt.running_at or _find_ending_time(task, attempt)
    failed = "" if attempt.running_at else _get_failure_code(task, attempt)
    start = story.span("start", above, times, number, error=failed, attempt=number, ranks=task.world_size)
    yield start
    yield from _build_node_spans(story, attempt, start.context)
    if (first := _find_first_step(task, attempt)) and _is_soon(attempt, first[0]):
        yield _build_first_step_span(story, attempt, *first)


def _build_end_spans(story: TaskTimeline, attempt: Attempt) -> Iterator[Span]:
    """Yield the spans of an attempt from there to its end."""
    task, number = story.task, attempt.number
    above, failed = trace_context.build_span_context(task, number, "attempt"), _get_failure_code(task, attempt)
    ends, ending = attempt.ended_at or now(), _find_ending_time(task, attempt)
    if attempt.running_at is None:
        yield from _build_start_spans(story, attempt)
    else:
        if (first := _find_first_step(task, attempt)) and not _is_soon(attempt, first[0]):
            yield _build_first_step_span(story, attempt, *first)
        yield story.span("run", above, (attempt.running_at, ending), number, error=failed, attempt=number)
    yield story.span("end", above, (ending, ends), number, attempt=number)
    told = {name: attempt.outcome_params.get(key) for name, key in CULPRIT_ATTRIBUTES.items()} if failed else {}
    culprit = {name: value for name, value in told.items() if isinstance(value, str | int)}
    yield story.span(
        "attempt",
        trace_context.build_task_context(task),
        (attempt.created_at, ends),
        number,
        error=failed,
        attempt=number,
        outcome=attempt.outcome,
        resume_from=attempt.resume_from,
        **culprit,
    )


def _build_node_spans(story: TaskTimeline, attempt: Attempt, above: TraceContext) -> Iterator[Span]:
    """Yield the spans of nodes and ranks, by the nodes' own clocks. There is no span for what an engine does not
    report."""
    number, by_node = attempt.number, dict[int, list[Mapping[str, Any]]]()
    for rank in attempt.seen.get("ranks", ())[:MAX_RANKS]:
        if rank.get("called_at") and rank.get("began_at"):
            by_node.setdefault(rank["node_rank"], []).append(rank)
    names = dict(story.task.nodes.filter(node_rank__in=by_node).values_list("node_rank", "name")) if by_node else {}
    for node_rank, ranks in sorted(by_node.items()):
        called, began = min(rank["called_at"] for rank in ranks), max(rank["began_at"] for rank in ranks)
        about: dict[str, Any] = {"attempt": number, "node_rank": node_rank, "node": names.get(node_rank, "")}
        times = _to_datetime(called), _to_datetime(began)
        node = story.span("node", above, times, number, node_rank, **about)
        yield node
        for rank in ranks:
            times = _to_datetime(rank["called_at"]), _to_datetime(rank["began_at"])
            yield story.span("rank", node.context, times, number, rank["rank"], **about, rank=rank["rank"])


def _build_first_step_span(story: TaskTimeline, attempt: Attempt, at: datetime, step: int) -> Span:
    number = attempt.number
    begun = [_to_datetime(rank["began_at"]) for rank in attempt.seen.get("ranks", ()) if rank.get("began_at")]
    since = max(begun, default=attempt.running_at or attempt.created_at)
    above = trace_context.build_span_context(story.task, number, "attempt")
    return story.span("first step", above, (since, at), number, attempt=number, step=step)


def _find_first_step(task: Task, attempt: Attempt) -> tuple[datetime, int] | None:
    return task.metrics.filter(attempt=attempt.number).order_by("pk").values_list("at", "step").first()


def _is_soon(attempt: Attempt, at: datetime) -> bool:
    return attempt.running_at is None or at - attempt.running_at <= MAX_FIRST_STEP_WAIT


def _find_ending_time(task: Task, attempt: Attempt) -> datetime:
    """Return when the attempt's end was known."""
    rows = task.events.filter(attempt=attempt.number, code="ATTEMPT_ENDING").order_by("pk")
    return rows.values_list("at", flat=True).first() or attempt.ended_at or now()


def _get_failure_code(task: Task, attempt: Attempt) -> str:
    """Return the code of a failure; empty for requested ends and for success."""
    if attempt.outcome in ("", TaskReason.COMPLETED) or build_cause(task.cluster, attempt.outcome).asked:
        return ""
    return attempt.outcome


def _to_datetime(unix: float) -> datetime:
    return datetime.fromtimestamp(unix, UTC)
