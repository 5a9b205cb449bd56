"""Endpoints of sweeps."""

from typing import Any

from apps.accounts.models import Role
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.errors import ApiError, ProblemsError
from apps.sweeps import presenters, selectors
from apps.sweeps.api import serializers
from apps.sweeps.services import lifecycle
from fermi.sweeps.documents import convert_document
from fermi.sweeps.spec import SweepRequest
from fermi.yaml_documents import YamlDocumentError, read_object


class SweepsView(APIView):
    @operation("listSweeps", scope="sweeps:read", query=serializers.SweepQuery, page=serializers.SweepItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the sweeps of your projects, newest first."""
        return paginate_rows(selectors.list_sweeps(request.user, query), query, presenters.serialize_sweep_item)

    @operation("createSweep", scope="sweeps:write", body=SweepRequest, data=serializers.Sweep, status=201)
    def post(self, request: Request, body: SweepRequest, wrong: list[Any]) -> Data:
        """Create a sweep: trials of one request with other parameters. The first ones start at once."""
        sweep = lifecycle.create_sweep(request.user, _read_body(request, wrong))
        return _serialize(request, sweep.pk)


class SweepPreviewView(APIView):
    @operation("previewSweep", scope="sweeps:read", body=SweepRequest, data=serializers.SweepPreview)
    def post(self, request: Request, body: SweepRequest, wrong: list[Any]) -> Data:
        """Return what a sweep would do, and all that is wrong with it. Nothing is stored."""
        return presenters.serialize_preview(lifecycle.preview_sweep(request.user, _read_body(request, wrong)))


class SweepFileView(APIView):
    @operation(
        "readSweepFile", scope="sweeps:read", body=serializers.SweepFileRequest, data=serializers.SweepFileMeaning
    )
    def post(self, request: Request, body: Body) -> Data:
        """Return the sweep that a pasted file describes. Nothing is stored. 400 for a text that is no such file."""
        try:
            sweep, problems = convert_document(read_object(body["text"]))
        except YamlDocumentError as refused:
            raise ApiError(400, refused.code, "text", **refused.params) from refused
        return presenters.serialize_file(sweep, problems)


class SweepView(APIView):
    @operation("getSweep", scope="sweeps:read", data=serializers.Sweep)
    def get(self, request: Request, sweep_id: str) -> Data:
        """Return one sweep with its best trial."""
        return _serialize(request, sweep_id)

    @operation("deleteSweep", scope="sweeps:write")
    def delete(self, request: Request, sweep_id: str) -> None:
        """Delete a sweep that has ended. The tasks of its trials stay."""
        lifecycle.delete_sweep(request.user, sweep_id)


class SweepPauseView(APIView):
    @operation("pauseSweep", scope="sweeps:write", data=serializers.Sweep)
    def post(self, request: Request, sweep_id: str) -> Data:
        """Start no further trial; those that run go on. Repeating the request changes nothing."""
        lifecycle.pause_sweep(request.user, sweep_id)
        return _serialize(request, sweep_id)


class SweepResumeView(APIView):
    @operation("resumeSweep", scope="sweeps:write", data=serializers.Sweep)
    def post(self, request: Request, sweep_id: str) -> Data:
        """Start trials again. Repeating the request changes nothing."""
        lifecycle.resume_sweep(request.user, sweep_id)
        return _serialize(request, sweep_id)


class SweepStopView(APIView):
    @operation("stopSweep", scope="sweeps:write", data=serializers.Sweep)
    def post(self, request: Request, sweep_id: str) -> Data:
        """Stop a sweep and its trials. Repeating the request changes nothing."""
        lifecycle.stop_sweep(request.user, sweep_id)
        return _serialize(request, sweep_id)


class SweepTrialsView(APIView):
    @operation("listSweepTrials", scope="sweeps:read", query=serializers.TrialQuery, page=serializers.SweepTrial)
    def get(self, request: Request, sweep_id: str, query: Query) -> Data:
        """List the trials of a sweep, each with why it waits, was paused, or ended as it did."""
        sweep = selectors.get_sweep(request.user, sweep_id)
        return paginate_rows(selectors.list_trials(sweep, query), query, presenters.serialize_trial)


class SweepImportanceView(APIView):
    @operation("getSweepImportance", scope="sweeps:read", data=serializers.SweepImportance)
    def get(self, request: Request, sweep_id: str) -> Data:
        """Return how much each parameter matters for the objective (PED-ANOVA), as far as completed trials tell."""
        return presenters.serialize_importance(selectors.get_sweep(request.user, sweep_id))


class SweepCloneBestView(APIView):
    @operation(
        "cloneBestTrial",
        scope="sweeps:write",
        body=serializers.CloneBestRequest,
        data=serializers.ClonedTask,
        status=201,
    )
    def post(self, request: Request, sweep_id: str, body: Body) -> Data:
        """Create a task with the parameters of the best trial, with more steps for example."""
        selectors.get_sweep(request.user, sweep_id, Role.MEMBER)
        return {"taskId": lifecycle.clone_best(request.user, sweep_id, **body).pk}


def _serialize(request: Request, sweep_id: str) -> Data:
    return presenters.serialize_sweep(selectors.get_sweep(request.user, sweep_id), request.user)


def _read_body(request: Request, wrong: list[Any]) -> dict[str, Any]:
    """Return the body, whose shape `parse_sweep` checks again, with its other problems. Raises ProblemsError for texts
    that the database cannot store."""
    if unstorable := [problem for problem in wrong if problem.code == "NUL_CHARACTER"]:
        raise ProblemsError(unstorable)
    return dict(request.data)
