"""Endpoints for training tasks."""

from collections.abc import AsyncIterator, Iterator
from itertools import chain

from asgiref.sync import sync_to_async
from django.db.models import F
from django.http import HttpResponse, StreamingHttpResponse

from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.errors import ApiError
from apps.common.texts import get_request_language
from apps.training.api import serializers
from apps.training.api.diagnosis import serialize_diagnosis
from apps.training.api.frameworks import serialize_advice
from apps.training.api.preview import serialize_preview
from apps.training.core import trace_context
from apps.training.logs import pages
from apps.training.logs.first_error import find_first_error
from apps.training.models import Checkpoint, Task
from apps.training.presenters import checkpoint_marks, event_stream, selectors, task_list, task_presenter
from apps.training.services import actions, diagnosis, pause, restart, scaling, scripts
from apps.training.services.create import create_task, retry_task
from apps.training.services.preview import preview_task
from apps.training.services.recommend import recommend_framework
from fermi.jobs.errors import UnknownNameError
from fermi.jobs.spec import Problem
from fermi.planning.request import ParsedRequest, TaskRequest
from fermi.runner.run_names import build_run_name


class TasksView(APIView):
    @operation("listTasks", scope="tasks:read", query=serializers.TaskQuery, data=serializers.TaskBriefPage)
    def get(self, request: Request, query: Query) -> Data:
        """List the training tasks of your projects, newest first. Sorted by anything but creation time, a list contains
        at most the newest 5,000 that match."""
        return task_list.list_tasks(request.user, query)

    @operation(
        "createTask",
        scope="tasks:write",
        body=TaskRequest,
        data=serializers.TaskCreated,
        status=201,
        message="TASK_CREATED_OK",
        headers=["Idempotency-Key"],
    )
    def post(self, request: Request, body: TaskRequest, wrong: list[Problem]) -> Data:
        """Create a task; it starts as soon as its environments are free. All problems are reported at once. 409 where
        the idempotency key belongs to another request."""
        key = request.headers.get("Idempotency-Key", "")
        if len(key) > 200:
            raise ApiError(400, "IDEMPOTENCY_KEY_TOO_LONG", "Idempotency-Key", high=200)
        came = trace_context.read_request_trace(request.headers.get("traceparent", ""))
        return _serialize_created(create_task(request.user, ParsedRequest(dict(request.data), body, wrong), key, came))


class TaskPreviewView(APIView):
    @operation("previewTask", scope="tasks:read", body=TaskRequest, data=serializers.TaskPreview)
    def post(self, request: Request, body: TaskRequest, wrong: list[Problem]) -> Data:
        """Return what a task would run: ranks, environments, files, the engine's objects, problems. Creates nothing."""
        return serialize_preview(preview_task(request.user, ParsedRequest(dict(request.data), body, wrong)))


class FrameworkRecommendView(APIView):
    @operation(
        "recommendFramework",
        scope="any",
        body=serializers.FrameworkRecommendRequest,
        data=serializers.FrameworkRecommendation,
    )
    def post(self, request: Request, body: Body) -> Data:
        """Return which framework suits a model of this size on these environments, with settings and reasons."""
        return serialize_advice(recommend_framework(request.user, **body))


class TaskView(APIView):
    @operation("getTask", scope="tasks:read", data=serializers.TaskDetail)
    def get(self, request: Request, task_id: str) -> Data:
        """Return one task with all details."""
        return selectors.get_task_detail(request.user, task_id)

    @operation("deleteTask", scope="tasks:write")
    def delete(self, request: Request, task_id: str) -> None:
        """Delete a task that has ended, with its logs and checkpoints. 409 where it has not ended, or another task uses
        its checkpoints."""
        actions.delete_task(request.user, task_id)


class TaskDiagnosisView(APIView):
    @operation("getTaskDiagnosis", scope="tasks:read", data=serializers.TaskDiagnosis)
    def get(self, request: Request, task_id: str) -> Data:
        """Return why the task is in its state: what happened, since when, where, the evidence, and what to do next.
        Also for a pre-flight test, by its id."""
        task = actions.find_task_of_any_kind(request.user, task_id)
        return serialize_diagnosis(diagnosis.diagnose_task(request.user, task))


class TaskRestartView(APIView):
    @operation("restartTask", scope="tasks:write", body=serializers.TaskRestartRequest, data=serializers.TaskDetail)
    def post(self, request: Request, task_id: str, body: Body) -> Data:
        """Resume from the newest checkpoint: a running task in its next attempt, an ended one as a new task. Returns
        the task that continues. 409 where that is not possible."""
        return selectors.get_task_detail(request.user, restart.restart_task(request.user, task_id, **body).pk)


class TaskStopView(APIView):
    @operation("stopTask", scope="tasks:write", data=serializers.TaskDetail)
    def post(self, request: Request, task_id: str) -> Data:
        """Stop a task: its ranks are asked to save a checkpoint and end. Repeating the request changes nothing."""
        return selectors.get_task_detail(request.user, actions.stop_task(request.user, task_id).pk)


class TaskPauseView(APIView):
    @operation("pauseTask", scope="tasks:write", data=serializers.TaskDetail)
    def post(self, request: Request, task_id: str) -> Data:
        """Pause a task: its ranks save a checkpoint, its environments are released, and the task waits until it is
        resumed. 409 where it is not active."""
        return selectors.get_task_detail(request.user, pause.pause_task(request.user, task_id).pk)


class TaskResumeView(APIView):
    @operation("resumeTask", scope="tasks:write", data=serializers.TaskDetail)
    def post(self, request: Request, task_id: str) -> Data:
        """Put a paused task back into the queue; it resumes from its newest checkpoint. 409 where it is not paused."""
        return selectors.get_task_detail(request.user, pause.resume_task(request.user, task_id).pk)


class TaskGrowView(APIView):
    @operation("growTask", scope="tasks:write", data=serializers.TaskDetail)
    def post(self, request: Request, task_id: str) -> Data:
        """Ask an elastic task that runs on fewer nodes than it may to save a checkpoint and continue on all that are
        available. 409 where it cannot grow."""
        return selectors.get_task_detail(request.user, actions.grow_task(request.user, task_id).pk)


class TaskRetryView(APIView):
    @operation(
        "retryTask",
        scope="tasks:write",
        body=serializers.TaskRetryRequest,
        data=serializers.TaskCreated,
        status=201,
        message="TASK_CREATED_OK",
    )
    def post(self, request: Request, task_id: str, body: Body) -> Data:
        """Create a task with the same request that resumes from the newest checkpoint. Where the source of its code has
        changed, it runs the present code unless the body says otherwise."""
        return _serialize_created(retry_task(request.user, task_id, **body))


class TaskCloneView(APIView):
    @operation("cloneTask", scope="tasks:write", data=serializers.TaskClone)
    def post(self, request: Request, task_id: str) -> Data:
        """Return the task's request, to be edited and sent again. Creates nothing."""
        return actions.clone_request(request.user, task_id)


class TaskEventsView(APIView):
    @operation("listTaskEvents", scope="tasks:read", query=serializers.EventQuery, page=serializers.TaskEvent)
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """List the events of a task, oldest first."""
        task = actions.find_task(request.user, task_id)
        return paginate_rows(selectors.query_events(task.pk, query["after"]), query, task_presenter.serialize_event)


class TaskMetricsView(APIView):
    @operation("listTaskMetrics", scope="tasks:read", query=serializers.MetricQuery, data=serializers.MetricList)
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """List the points of metrics that the ranks printed, oldest first."""
        return selectors.list_metrics(actions.find_task(request.user, task_id).pk, query)


class TaskMediaView(APIView):
    @operation("listTaskMedia", scope="tasks:read", query=serializers.MediaQuery, page=serializers.MediaItem)
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """List the images, texts, tables and histograms that the script logged; `downloadTaskOutput` returns their
        files."""
        task = actions.find_task(request.user, task_id)
        return paginate_rows(selectors.query_media(task.pk, query), query)


class TaskScalingView(APIView):
    @operation("getTaskScaling", scope="tasks:read", data=serializers.TaskScaling)
    def get(self, request: Request, task_id: str) -> Data:
        """Return the expected and the measured speed of the task."""
        found = scaling.compare_scaling(request.user, actions.find_task(request.user, task_id))
        return {
            "expected": found.expected and task_presenter.serialize_scaling(found.expected),
            "tokensPerSecond": found.tokens_per_second,
            "offBy": found.off_by,
        }


class TaskCheckpointsView(APIView):
    @operation(
        "listTaskCheckpoints", scope="tasks:read", query=serializers.CheckpointQuery, page=serializers.CheckpointItem
    )
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """List the checkpoints that a restart, a retry or another task can resume from."""
        task = actions.find_task(request.user, task_id)
        rows = Checkpoint.objects.filter(task=task).values(
            "attempt", "step", "path", "at", "source", "layout", "nodes", sizeBytes=F("size_bytes"),
            valLoss=F("val_loss"), complete=F("is_complete"),
        )  # fmt: skip
        marks = checkpoint_marks.find_marks(task)
        return paginate_rows(rows, query, lambda row: checkpoint_marks.mark_row(row, marks))


class TaskPlanView(APIView):
    @operation("getTaskPlan", scope="tasks:read", query=serializers.PlanQuery, data=serializers.TaskPlan)
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """Return what was rendered for an attempt and sent to the engine."""
        found = selectors.get_plan(actions.find_task(request.user, task_id), query.get("attempt"), request.user)
        if found is None:
            raise ApiError(404, "ATTEMPT_UNKNOWN", "attempt")
        return found


class TaskScriptsView(APIView):
    @operation(
        "downloadTaskScripts", scope="outputs:read", query=serializers.ScriptsQuery, media="application/gzip", cost=10
    )
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """Return scripts, rendered files and a README for starting the task by hand, as a .tar.gz; one kind for each
        target."""
        task = actions.find_task(request.user, task_id)
        try:
            name, content = scripts.build_script_archive(
                request.user, task, query["target"], get_request_language(), query.get("master_port")
            )
        except UnknownNameError as unknown:
            raise ApiError(400, unknown.code, "target", **unknown.params) from unknown
        response = HttpResponse(content, content_type="application/gzip")
        response["Content-Disposition"] = f'attachment; filename="{name}"'
        return response


class TaskLogsView(APIView):
    @operation("listTaskLogs", scope="tasks:read", query=serializers.LogQuery, data=serializers.LogPage)
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """List lines of the log of one rank or of all ranks, filtered by a search, a level or times. A page without
        lines is not necessarily the `end`."""
        return pages.read_page(actions.find_task(request.user, task_id), query)


class TaskFirstErrorView(APIView):
    @operation("getTaskFirstError", scope="tasks:read", query=serializers.FirstErrorQuery, data=serializers.FirstError)
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """Return the first line that reports an error, of one rank or of all: the earliest where lines have times, else
        that of the rank that failed first."""
        return find_first_error(actions.find_task(request.user, task_id), query)


class TaskLogDownloadView(APIView):
    @operation("downloadTaskLog", scope="tasks:read", query=serializers.LogDownloadQuery, media="text/plain")
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """Return the whole log of one rank, or of all ranks one after the other, as a file."""
        task = actions.find_task(request.user, task_id)
        attempt = query.get("attempt") or max(task.attempt, 1)
        reader, name = pages.LogPageReader(task, attempt), build_run_name(task.pk, attempt)
        if query["rank"] == "all":
            pieces = reader.everything()
        else:
            rank = pages.parse_rank(task, query["rank"])
            pieces, name = reader.iterate_log(rank), f"{name}-rank{rank}"
        response = StreamingHttpResponse(
            _iterate_in_thread(_read_first_piece(pieces)), content_type="text/plain; charset=utf-8"
        )
        response["Content-Disposition"] = f'attachment; filename="{name}.log"'
        return response


class TaskStreamView(APIView):
    @operation(
        "streamTask",
        scope="tasks:read",
        query=serializers.StreamQuery,
        media="text/event-stream",
        headers=["Last-Event-ID"],
    )
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """Stream Server-Sent Events: `status`, `event`, `metric`, `log`, and `end` once nothing can follow; `beat`
        after every two seconds without any. Resumes from Last-Event-ID."""
        task = actions.find_task(request.user, task_id)
        event_stream.OPEN_STREAMS.refuse_more(request.user.pk)
        ranks = query["logs"] if query["logs"] in ("none", "all") else str(pages.parse_rank(task, query["logs"]))
        resume = request.headers.get("Last-Event-ID", "")
        body = event_stream.stream_task(task.pk, request.user, resume, ranks, get_request_language())
        response = StreamingHttpResponse(body, content_type="text/event-stream")
        response["Cache-Control"] = "no-cache"
        response["X-Accel-Buffering"] = "no"
        return response


def _serialize_created(task: Task) -> Data:
    return {
        "taskId": task.pk,
        "status": task.state,
        "distributedInfo": {
            "nodeCount": task.node_count,
            "totalGpus": task.total_gpus,
            "masterNode": task.master,
            "framework": task.framework,
            "worldSize": task.world_size,
        },
        "summary": task.summary,
        "warnings": [task_presenter.serialize_warning(warning["code"], warning["params"]) for warning in task.warnings],
    }


def _read_first_piece(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Return the pieces with the first one read: a log that cannot be read at all is an error, not an empty file."""
    return chain([next(pieces, b"")], pieces)


async def _iterate_in_thread(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces, each read in a thread, as an event loop must not wait for a disk."""
    while (piece := await sync_to_async(lambda: next(pieces, None))()) is not None:
        yield piece
