"""Experiments and runs: what each request of MLflow's REST API does."""

from collections.abc import Sequence
from typing import Any

from apps.common.errors import ApiError
from apps.mlflow import presenters, search
from apps.mlflow.api import messages
from apps.mlflow.api.messages import read_number, to_dict
from apps.mlflow.callers import Caller
from apps.mlflow.filters import FilterError, parse_filter, parse_orders
from apps.mlflow.services import artifacts, experiments, logged_models, runs, values
from apps.mlflow.services.values import LoggedValue

Message = dict[str, Any]
MAX_PAGE = 500
MAX_HISTORY_PAGE = 25_000
STATUS_NUMBERS = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
MODEL_HISTORY_TAG = "mlflow.log-model.history"


def get_experiment(caller: Caller, body: messages.ExperimentKey) -> Message:
    found = experiments.get_experiment(caller, body.experiment_id)
    return {"experiment": presenters.serialize_experiment(found)}


def get_experiment_by_name(caller: Caller, body: messages.ExperimentName) -> Message:
    found = experiments.get_experiment_by_name(caller, body.experiment_name)
    return {"experiment": presenters.serialize_experiment(found)}


def create_experiment(caller: Caller, body: messages.CreateExperiment) -> Message:
    return {"experiment_id": experiments.create_experiment(caller, body.name, to_dict(body.tags)).id}


def search_experiments(caller: Caller, body: messages.Page) -> Message:
    pattern = ""
    for condition in read_filter(body.filter):
        if (condition.kind, condition.key) != ("attribute", "name") or condition.operator not in ("=", "LIKE", "ILIKE"):
            raise refuse_name(condition.key, "name")
        pattern = condition.values[0]
    start, count = read_page(body.page_token, body.max_results)
    found = experiments.list_experiments(caller, pattern, start, count + 1)
    return {
        "experiments": [presenters.serialize_experiment(one) for one in found[:count]],
        **make_token(found, start, count),
    }


def set_experiment_tag(caller: Caller, body: messages.ExperimentTag) -> Message:
    experiments.change_tags(caller, body.experiment_id, {body.key: body.value})
    return {}


def delete_experiment_tag(caller: Caller, body: messages.ExperimentTag) -> Message:
    experiments.change_tags(caller, body.experiment_id, {body.key: None})
    return {}


def create_run(caller: Caller, body: messages.CreateRun) -> Message:
    tags = to_dict(body.tags)
    row = runs.begin_run(caller, body.experiment_id, body.run_name, body.user_id, body.start_time, tags)
    if tags:
        values.log_values(caller, row.pk, tags=tags)
    return {"run": presenters.serialize_runs([runs.find_run(caller, row.pk)])[0]}


def get_run(caller: Caller, body: messages.RunKey) -> Message:
    return {"run": presenters.serialize_runs([runs.find_run(caller, read_run_id(body))])[0]}


def update_run(caller: Caller, body: messages.UpdateRun) -> Message:
    status = STATUS_NUMBERS.get(body.status, "?") if isinstance(body.status, int) else body.status
    if status and status not in runs.RUN_STATUSES:
        raise ApiError(400, "MLFLOW_FIELD", "status", detail=f"{status[:50]}: {', '.join(runs.RUN_STATUSES)}")
    found = runs.change_run(caller, read_run_id(body), status, body.end_time, body.run_name)
    return {"run_info": presenters.serialize_run_info(found)}


def delete_run(caller: Caller, body: messages.RunKey) -> Message:
    runs.mark_deleted(caller, read_run_id(body), deleted=True)
    return {}


def restore_run(caller: Caller, body: messages.RunKey) -> Message:
    runs.mark_deleted(caller, read_run_id(body), deleted=False)
    return {}


def log_metric(caller: Caller, body: messages.LogMetric) -> Message:
    _log_metrics(caller, read_run_id(body), [body])
    return {}


def log_parameter(caller: Caller, body: messages.RunPair) -> Message:
    values.log_values(caller, read_run_id(body), parameters={body.key: body.value})
    return {}


def set_tag(caller: Caller, body: messages.RunPair) -> Message:
    values.log_values(caller, read_run_id(body), tags={body.key: body.value})
    return {}


def delete_tag(caller: Caller, body: messages.RunPair) -> Message:
    values.delete_tag(caller, read_run_id(body), body.key)
    return {}


def log_batch(caller: Caller, body: messages.LogBatch) -> Message:
    _log_metrics(caller, read_run_id(body), body.metrics, to_dict(body.params), to_dict(body.tags))
    return {}


def _log_metrics(
    caller: Caller,
    run_id: str,
    found: Sequence[messages.MetricMessage | messages.LogMetric],
    parameters: dict[str, str] | None = None,
    tags: dict[str, str] | None = None,
) -> None:
    metrics = [LoggedValue(one.key, read_number(one.value), one.step, one.timestamp) for one in found]
    values.log_values(caller, run_id, metrics, parameters, tags)
    of_models = [
        (one.model_id, {
            **presenters.serialize_metric(one.key, metric.value, one.step, one.timestamp),
            "model_id": one.model_id, "run_id": run_id,
            "dataset_name": one.dataset_name, "dataset_digest": one.dataset_digest,
        })
        for one, metric in zip(found, metrics, strict=True) if one.model_id
    ]  # fmt: skip
    if of_models:
        logged_models.add_metrics(caller, of_models)


def log_inputs(caller: Caller, body: messages.LogInputs) -> Message:
    found: list[Message] = [
        {
            "dataset": {name: value for name in one.dataset.__struct_fields__ if (value := getattr(one.dataset, name))},
            "tags": [{"key": tag.key, "value": tag.value} for tag in one.tags],
        }
        for one in body.datasets
    ]
    found += [{"model_id": one.model_id} for one in body.models]
    values.add_links(caller, read_run_id(body), "inputs", found)
    return {}


def log_outputs(caller: Caller, body: messages.LogOutputs) -> Message:
    found = [{"model_id": one.model_id, "step": one.step} for one in body.models]
    values.add_links(caller, read_run_id(body), "outputs", found)
    return {}


def log_model(caller: Caller, body: messages.LogModel) -> Message:
    """Keep what MLflow 2 says of a model that it logged, in the tag in which its clients look for it."""
    import json

    run_id = read_run_id(body)
    found = runs.find_run(caller, run_id)
    known = (
        found.row.entries.filter(kind="tag", key=MODEL_HISTORY_TAG).values_list("value", flat=True) if found.row else []
    )
    try:
        history = [*json.loads(next(iter(known), "[]")), json.loads(body.model_json)]
    except ValueError as error:
        raise ApiError(400, "MLFLOW_FIELD", "model_json", detail=str(error)[:200]) from error
    text = json.dumps(history)
    while len(text) > 8000 and history:
        history = history[1:]
        text = json.dumps(history)
    values.log_values(caller, run_id, tags={MODEL_HISTORY_TAG: text})
    return {}


def search_runs(caller: Caller, body: messages.SearchRuns) -> Message:
    start, count = read_page(body.page_token, body.max_results)
    found = [experiments.get_experiment(caller, one) for one in dict.fromkeys(body.experiment_ids)]
    try:
        orders = parse_orders(body.order_by)
    except FilterError as error:
        raise ApiError(400, "MLFLOW_FILTER", "order_by", position=error.position, found=error.found) from error
    conditions = read_filter(body.filter)
    rows = search.search_runs(caller, found, conditions, orders, body.run_view_type, start, count + 1)
    return {"runs": presenters.serialize_runs(rows[:count]), **make_token(rows, start, count)}


def get_metric_history(caller: Caller, body: messages.MetricHistory) -> Message:
    start, count = read_page(body.page_token, body.max_results, MAX_HISTORY_PAGE)
    found = runs.find_run(caller, read_run_id(body))
    shown: list[Message]
    if found.row:
        rows = found.row.history.filter(key=body.metric_key).order_by("pk")[start : start + count + 1]
        shown = [presenters.serialize_metric(row.key, row.value, row.step, row.at) for row in rows]
    else:
        shown = presenters.serialize_points(found.task.pk, body.metric_key, start, count + 1)
    return {"metrics": shown[:count], **make_token(shown, start, count)}


def list_artifacts(caller: Caller, body: messages.ListRunArtifacts) -> Message:
    found = runs.find_run(caller, read_run_id(body))
    root = artifacts.get_run_root(found)
    address = f"{root.removeprefix(artifacts.SCHEME)}/{body.path}"
    files = artifacts.list_artifacts(caller, address)
    shown = [presenters.serialize_file(file, presenters.strip_root(file.path, found)) for file in files]
    return {"root_uri": root, "files": shown}


def read_run_id(body: messages.RunKey) -> str:
    """Return the run that a request is about; old clients name it `run_uuid`. Raises ApiError 400."""
    run_id = body.run_id or body.run_uuid
    if not run_id:
        raise ApiError(400, "MLFLOW_FIELD", "run_id", detail="run_id")
    return run_id


def read_filter(text: str) -> list[Any]:
    """Return the conditions of a filter. Raises ApiError 400."""
    try:
        return parse_filter(text)
    except FilterError as error:
        raise ApiError(400, "MLFLOW_FILTER", "filter", position=error.position, found=error.found) from error


def refuse_name(name: str, allowed: str) -> ApiError:
    """Return the error for a filter by what cannot be filtered by."""
    return ApiError(400, "MLFLOW_ATTRIBUTE_UNKNOWN", "filter", name=name[:100], allowed=allowed)


def read_page(token: str, count: int, most: int = MAX_PAGE) -> tuple[int, int]:
    """Return the first row of a page, and how many rows it has."""
    return min(int(token or 0), search.MAX_OFFSET), min(count, most)


def make_token(found: list[Any], start: int, count: int) -> Message:
    """Return the token of the next page, if there is one."""
    return {"next_page_token": str(start + count)} if len(found) > count and start + count < search.MAX_OFFSET else {}
