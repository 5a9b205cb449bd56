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
from apps.training.core import trace_context
from apps.training.logs import pages
from apps.training.logs.first_error import find_first_error
from apps.training.models import Checkpoint, Task
from apps.training.presenters import event_stream, selectors, task_list, task_presenter
from apps.training.services import actions, diagnosis, pause, restart, scaling, scripts
from apps.training.services.create import create_task, retry_task
from apps.training.services.preview import preview_task
from apps.training.services.recommend import recommend_framework
from fermi.jobs.errors import UnknownNameError
from fermi.jobs.spec import Problem, format_attempt_name
from fermi.planning.request import TaskRequest


class TasksView(APIView):
    @operation("listTasks", query=serializers.TaskQuery, data=serializers.TaskBriefPage)
    def get(self, request: Request, query: Query) -> Data:
        """The training tasks of your projects, newest first. In any other order than that of their creation, a list is
        the newest 5,000 of them that match."""
        return task_list.list_tasks(request.user, query)

    @operation(
        "createTask",
        body=TaskRequest,
        data=serializers.TaskCreated,
        status=201,
        message="TASK_CREATED_OK",
        headers=["Idempotency-Key"],
    )
    def post(self, request: Request, body: TaskRequest, wrong: list[Problem]) -> Data:
        """Creates a task and starts it as soon as its environments are free. All problems come at once."""
        key = request.headers.get("Idempotency-Key", "")
        if len(key) > 200:
            raise ApiError(400, "IDEMPOTENCY_KEY_TOO_LONG", "Idempotency-Key", high=200)
        came = trace_context.read_request_trace(request.headers.get("traceparent", ""))
        return _serialize_created(create_task(request.user, body, dict(request.data), key, wrong, came))


class TaskPreviewView(APIView):
    @operation("previewTask", body=TaskRequest, data=serializers.TaskPreview)
    def post(self, request: Request, body: TaskRequest, wrong: list[Problem]) -> Data:
        """What a create would run: ranks, environments, files, the engine's objects, problems. Creates nothing."""
        return preview_task(request.user, body, dict(request.data), wrong)


class FrameworkRecommendView(APIView):
    @operation(
        "recommendFramework", body=serializers.FrameworkRecommendRequest, data=serializers.FrameworkRecommendation
    )
    def post(self, request: Request, body: Body) -> Data:
        """Which framework for a model of that size on these environments, with its settings and the reasons."""
        return recommend_framework(request.user, **body)


class TaskView(APIView):
    @operation("getTask", data=serializers.TaskDetail)
    def get(self, request: Request, task_id: str) -> Data:
        """Everything about one task."""
        return selectors.get_task_detail(request.user, task_id)

    @operation("deleteTask")
    def delete(self, request: Request, task_id: str) -> None:
        """Deletes a task that has ended, with its logs and checkpoints."""
        actions.delete_task(request.user, task_id)


class TaskDiagnosisView(APIView):
    @operation("getTaskDiagnosis", data=serializers.TaskDiagnosis)
    def get(self, request: Request, task_id: str) -> Data:
        """Why the task is as it is: what, since when, where, the evidence, and what to do next. Also of a pre-flight
        test, by its id."""
        return diagnosis.diagnose_task(request.user, actions.find_task_of_any_kind(request.user, task_id))


class TaskRestartView(APIView):
    @operation("restartTask", body=serializers.TaskRestartRequest, data=serializers.TaskDetail)
    def post(self, request: Request, task_id: str, body: Body) -> Data:
        """Goes on from the newest checkpoint: a task that runs by its next attempt, one that has ended by a new task.
        Answers with the task that goes on."""
        return selectors.get_task_detail(request.user, restart.restart_task(request.user, task_id, **body).pk)


class TaskStopView(APIView):
    @operation("stopTask", data=serializers.TaskDetail)
    def post(self, request: Request, task_id: str) -> Data:
        """Asks the ranks to save and end. Asking again changes nothing."""
        return selectors.get_task_detail(request.user, actions.stop_task(request.user, task_id).pk)


class TaskPauseView(APIView):
    @operation("pauseTask", data=serializers.TaskDetail)
    def post(self, request: Request, task_id: str) -> Data:
        """Asks the ranks to save, gives the environments back, and keeps the task until it is resumed."""
        return selectors.get_task_detail(request.user, pause.pause_task(request.user, task_id).pk)


class TaskResumeView(APIView):
    @operation("resumeTask", data=serializers.TaskDetail)
    def post(self, request: Request, task_id: str) -> Data:
        """A paused task stands in line again, and goes on from its newest checkpoint."""
        return selectors.get_task_detail(request.user, pause.resume_task(request.user, task_id).pk)


class TaskGrowView(APIView):
    @operation("growTask", data=serializers.TaskDetail)
    def post(self, request: Request, task_id: str) -> Data:
        """Asks an elastic task that runs on fewer nodes than it may to save and go on with all that are there now."""
        return selectors.get_task_detail(request.user, actions.grow_task(request.user, task_id).pk)


class TaskRetryView(APIView):
    @operation(
        "retryTask",
        body=serializers.TaskRetryRequest,
        data=serializers.TaskCreated,
        status=201,
        message="TASK_CREATED_OK",
    )
    def post(self, request: Request, task_id: str, body: Body) -> Data:
        """A new task with the same request, resuming from the newest checkpoint. Where the source of its code has
        changed, it runs the code as it is now, unless the body says otherwise."""
        return _serialize_created(retry_task(request.user, task_id, **body))


class TaskCloneView(APIView):
    @operation("cloneTask", data=serializers.TaskClone)
    def post(self, request: Request, task_id: str) -> Data:
        """The task's request, ready to be edited and sent."""
        return actions.clone_request(request.user, task_id)


class TaskEventsView(APIView):
    @operation("listTaskEvents", query=serializers.EventQuery, page=serializers.TaskEvent)
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """What happened, oldest first."""
        task = actions.find_task(request.user, task_id)
        return paginate_rows(selectors.query_events(task.pk, query["after"]), query, task_presenter.serialize_event)


class TaskMetricsView(APIView):
    @operation("listTaskMetrics", query=serializers.MetricQuery, data=serializers.MetricList)
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """Points as the ranks printed them, oldest first."""
        return selectors.list_metrics(actions.find_task(request.user, task_id).pk, query)


class TaskScalingView(APIView):
    @operation("getTaskScaling", data=serializers.TaskScaling)
    def get(self, request: Request, task_id: str) -> Data:
        """The speed that was to be expected, and the task's own."""
        return scaling.compare_scaling(request.user, actions.find_task(request.user, task_id))


class TaskCheckpointsView(APIView):
    @operation("listTaskCheckpoints", query=serializers.CheckpointQuery, page=serializers.CheckpointItem)
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """What a restart, a retry or another task can resume from."""
        task = actions.find_task(request.user, task_id)
        rows = Checkpoint.objects.filter(task=task).values(
            "attempt", "step", "path", "at", sizeBytes=F("size_bytes"), valLoss=F("val_loss")
        )
        return paginate_rows(rows, query)


class TaskPlanView(APIView):
    @operation("getTaskPlan", query=serializers.PlanQuery, data=serializers.TaskPlan)
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """What was rendered for an attempt and sent to the engine."""
        found = selectors.get_plan(actions.find_task(request.user, task_id), query.get("attempt"), request.user)
        if found is None:
            raise ApiError(404, "ATTEMPT_UNKNOWN", "attempt")
        return found


class TaskScriptsView(APIView):
    @operation("downloadTaskScripts", query=serializers.ScriptsQuery, media="application/gzip")
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """Scripts, rendered files and a README to start the task by hand, as a .tar.gz; one kind for each target."""
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
    @operation("listTaskLogs", query=serializers.LogQuery, data=serializers.LogPage)
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """Lines of a rank's log, or of all ranks; those that a search, a level or times leave. An answer without lines
        is not yet the `end`."""
        return pages.read_page(actions.find_task(request.user, task_id), query)


class TaskFirstErrorView(APIView):
    @operation("getTaskFirstError", query=serializers.FirstErrorQuery, data=serializers.FirstError)
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """The first line that says it is an error, of one rank or of all: the earliest where the lines have times, or
        else that of the rank that failed first."""
        return find_first_error(actions.find_task(request.user, task_id), query)


class TaskLogDownloadView(APIView):
    @operation("downloadTaskLog", query=serializers.LogDownloadQuery, media="text/plain")
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """The whole log of a rank, or of all of them one after the other, as a file."""
        task = actions.find_task(request.user, task_id)
        attempt = query.get("attempt") or max(task.attempt, 1)
        reader, name = pages.LogPageReader(task, attempt), format_attempt_name(task.pk, attempt)
        if query["rank"] == "all":
            pieces = reader.everything()
        else:
            rank = pages.parse_rank(task, query["rank"])
            pieces, name = reader.whole(rank), f"{name}-rank{rank}"
        response = StreamingHttpResponse(
            _iterate_in_thread(_read_first_piece(pieces)), content_type="text/plain; charset=utf-8"
        )
        response["Content-Disposition"] = f'attachment; filename="{name}.log"'
        return response


class TaskStreamView(APIView):
    @operation("streamTask", query=serializers.StreamQuery, media="text/event-stream", headers=["Last-Event-ID"])
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """Server-Sent Events: `status`, `event`, `metric`, `log`, and `end` once nothing can follow; `beat` every two
        seconds of silence. Resumes from Last-Event-ID."""
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
