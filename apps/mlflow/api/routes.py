"""Routes of MLflow's REST API (mlflow/protos/service.proto, model_registry.proto), below `/mlflow/api/2.0/mlflow/`."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import Struct

from apps.mlflow.api import messages
from apps.mlflow.api import model_endpoints as models
from apps.mlflow.api import run_endpoints as runs


class Route(NamedTuple):
    """What answers a request: the shape of its body, or query, and a function of caller, message and path."""

    message: type[Struct]
    answer: Callable[..., dict[str, Any]]


_M = messages
FIXED: dict[tuple[str, str], Route] = {
    ("GET", "experiments/get"): Route(_M.ExperimentKey, runs.get_experiment),
    ("GET", "experiments/get-by-name"): Route(_M.ExperimentName, runs.get_experiment_by_name),
    ("POST", "experiments/create"): Route(_M.CreateExperiment, runs.create_experiment),
    ("POST", "experiments/search"): Route(_M.Page, runs.search_experiments),
    ("GET", "experiments/search"): Route(_M.Page, runs.search_experiments),
    ("POST", "experiments/set-experiment-tag"): Route(_M.ExperimentTag, runs.set_experiment_tag),
    ("POST", "experiments/delete-experiment-tag"): Route(_M.ExperimentTag, runs.delete_experiment_tag),
    ("POST", "runs/create"): Route(_M.CreateRun, runs.create_run),
    ("GET", "runs/get"): Route(_M.RunKey, runs.get_run),
    ("POST", "runs/update"): Route(_M.UpdateRun, runs.update_run),
    ("POST", "runs/delete"): Route(_M.RunKey, runs.delete_run),
    ("POST", "runs/restore"): Route(_M.RunKey, runs.restore_run),
    ("POST", "runs/log-metric"): Route(_M.LogMetric, runs.log_metric),
    ("POST", "runs/log-parameter"): Route(_M.RunPair, runs.log_parameter),
    ("POST", "runs/set-tag"): Route(_M.RunPair, runs.set_tag),
    ("POST", "runs/delete-tag"): Route(_M.RunPair, runs.delete_tag),
    ("POST", "runs/log-batch"): Route(_M.LogBatch, runs.log_batch),
    ("POST", "runs/log-inputs"): Route(_M.LogInputs, runs.log_inputs),
    ("POST", "runs/outputs"): Route(_M.LogOutputs, runs.log_outputs),
    ("POST", "runs/log-model"): Route(_M.LogModel, runs.log_model),
    ("POST", "runs/search"): Route(_M.SearchRuns, runs.search_runs),
    ("GET", "metrics/get-history"): Route(_M.MetricHistory, runs.get_metric_history),
    ("GET", "artifacts/list"): Route(_M.ListRunArtifacts, runs.list_artifacts),
    ("POST", "logged-models"): Route(_M.CreateLoggedModel, models.create_logged_model),
    ("POST", "logged-models/search"): Route(_M.SearchLoggedModels, models.search_logged_models),
    ("POST", "registered-models/create"): Route(_M.CreateRegistered, models.create_registered),
    ("GET", "registered-models/get"): Route(_M.ModelName, models.get_registered),
    ("PATCH", "registered-models/update"): Route(_M.UpdateRegistered, models.update_registered),
    ("POST", "registered-models/rename"): Route(_M.RenameRegistered, models.rename_registered),
    ("DELETE", "registered-models/delete"): Route(_M.ModelName, models.delete_registered),
    ("GET", "registered-models/search"): Route(_M.Page, models.search_registered),
    ("POST", "registered-models/get-latest-versions"): Route(_M.LatestVersions, models.get_latest_versions),
    ("GET", "registered-models/get-latest-versions"): Route(_M.LatestVersions, models.get_latest_versions),
    ("POST", "registered-models/set-tag"): Route(_M.RegisteredTag, models.set_registered_tag),
    ("DELETE", "registered-models/delete-tag"): Route(_M.RegisteredTag, models.delete_registered_tag),
    ("POST", "registered-models/alias"): Route(_M.SetAlias, models.set_alias),
    ("DELETE", "registered-models/alias"): Route(_M.Alias, models.delete_alias),
    ("GET", "registered-models/alias"): Route(_M.Alias, models.get_version_by_alias),
    ("POST", "model-versions/create"): Route(_M.CreateVersion, models.create_version),
    ("GET", "model-versions/get"): Route(_M.VersionKey, models.get_version),
    ("GET", "model-versions/get-download-uri"): Route(_M.VersionKey, models.get_download_uri),
    ("PATCH", "model-versions/update"): Route(_M.UpdateVersion, models.update_version),
    ("POST", "model-versions/transition-stage"): Route(_M.TransitionVersion, models.transition_version),
    ("DELETE", "model-versions/delete"): Route(_M.VersionKey, models.delete_version),
    ("GET", "model-versions/search"): Route(_M.Page, models.search_versions),
    ("POST", "model-versions/set-tag"): Route(_M.VersionTag, models.set_version_tag),
    ("DELETE", "model-versions/delete-tag"): Route(_M.VersionTag, models.delete_version_tag),
}
_MODEL = r"logged-models/(?P<model_id>[^/]{1,64})"
WITH_NAMES: list[tuple[str, re.Pattern[str], Route]] = [
    ("GET", re.compile(_MODEL), Route(_M.Empty, models.get_logged_model)),
    ("PATCH", re.compile(_MODEL), Route(_M.FinalizeLoggedModel, models.finalize_logged_model)),
    ("DELETE", re.compile(_MODEL), Route(_M.Empty, models.delete_logged_model)),
    ("PATCH", re.compile(f"{_MODEL}/tags"), Route(_M.ModelPairs, models.set_logged_model_tags)),
    (
        "DELETE",
        re.compile(rf"{_MODEL}/tags/(?P<tag_key>.{{1,250}})"),
        Route(_M.Empty, models.delete_logged_model_tag),
    ),
    ("POST", re.compile(f"{_MODEL}/params"), Route(_M.ModelPairs, models.log_logged_model_params)),
    (
        "GET",
        re.compile(f"{_MODEL}/artifacts/directories"),
        Route(_M.ListModelArtifacts, models.list_logged_model_artifacts),
    ),
]


def find_route(method: str, path: str) -> tuple[Route, dict[str, str]] | None:
    """Return what answers a request, and the names in its path; None if there is no such route."""
    if route := FIXED.get((method, path)):
        return route, {}
    for own, pattern, route in WITH_NAMES:
        if own == method and (match := pattern.fullmatch(path)):
            return route, match.groupdict()
    return None
