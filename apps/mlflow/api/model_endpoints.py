"""Logged models and the registry: what each request of MLflow's REST API does."""

from typing import Any

from apps.common.errors import ApiError
from apps.mlflow import presenters
from apps.mlflow.api import messages
from apps.mlflow.api.messages import to_dict
from apps.mlflow.api.run_endpoints import make_token, read_filter, read_page, refuse_name
from apps.mlflow.callers import Caller
from apps.mlflow.models import LoggedModel, ModelVersion
from apps.mlflow.services import artifacts, experiments, logged_models, registry

Message = dict[str, Any]
STATUS_NUMBERS = dict(enumerate(logged_models.STATUSES, 1))


def create_logged_model(caller: Caller, body: messages.CreateLoggedModel) -> Message:
    row = logged_models.create_model(
        caller, body.experiment_id, body.name, body.model_type, body.source_run_id, to_dict(body.params),
        to_dict(body.tags),
    )  # fmt: skip
    return _show_model(row)


def get_logged_model(caller: Caller, body: messages.Empty, model_id: str) -> Message:
    return _show_model(logged_models.find_model(caller, model_id))


def finalize_logged_model(caller: Caller, body: messages.FinalizeLoggedModel, model_id: str) -> Message:
    status = STATUS_NUMBERS.get(body.status, "?") if isinstance(body.status, int) else body.status
    if status not in logged_models.STATUSES:
        raise ApiError(400, "MLFLOW_FIELD", "status", detail=f"{status[:50]}: {', '.join(logged_models.STATUSES)}")
    return _show_model(logged_models.change_model(caller, model_id, status=status))


def delete_logged_model(caller: Caller, body: messages.Empty, model_id: str) -> Message:
    logged_models.change_model(caller, model_id, deleted=True)
    return {}


def set_logged_model_tags(caller: Caller, body: messages.ModelPairs, model_id: str) -> Message:
    return _show_model(logged_models.change_model(caller, model_id, tags=dict(to_dict(body.tags))))


def delete_logged_model_tag(caller: Caller, body: messages.Empty, model_id: str, tag_key: str) -> Message:
    return _show_model(logged_models.change_model(caller, model_id, tags={tag_key: None}))


def log_logged_model_params(caller: Caller, body: messages.ModelPairs, model_id: str) -> Message:
    logged_models.change_model(caller, model_id, params=to_dict(body.params))
    return {}


def search_logged_models(caller: Caller, body: messages.SearchLoggedModels) -> Message:
    start, count = read_page(body.page_token, body.max_results)
    rows = LoggedModel.objects.select_related("task").filter(deleted_at__isnull=True)
    rows = caller.filter_visible(rows, "task__project")
    found = [experiments.get_experiment(caller, one) for one in dict.fromkeys(body.experiment_ids)]
    if found:
        named = [one.id for one in found if one.row]
        projects = [one.id for one in found if not one.row]
        rows = rows.filter(experiment__in=named) | rows.filter(experiment=None, task__project__in=projects)
    columns = {"name": "name", "source_run_id": "run_id", "model_id": "pk", "model_type": "kind", "status": "status"}
    for condition in read_filter(body.filter):
        if condition.kind != "attribute" or condition.key not in columns or condition.operator not in ("=", "IN"):
            raise refuse_name(condition.key, ", ".join(columns))
        rows = rows.filter(**{f"{columns[condition.key]}__in": condition.values})
    shown = list(rows.order_by("-created_at", "-pk")[start : start + count + 1])
    return {
        "models": [presenters.serialize_logged_model(row) for row in shown[:count]],
        **make_token(shown, start, count),
    }


def list_logged_model_artifacts(caller: Caller, body: messages.ListModelArtifacts, model_id: str) -> Message:
    row = logged_models.find_model(caller, model_id)
    root = artifacts.get_model_root(row.task_id, row.pk)
    address = f"{root.removeprefix(artifacts.SCHEME)}/{body.artifact_directory_path}"
    above = f"{artifacts.ROOT}/models/{row.pk}/"
    files = artifacts.list_artifacts(caller, address)
    return {
        "root_uri": root,
        "files": [presenters.serialize_file(file, file.path.removeprefix(above)) for file in files],
    }


def _show_model(row: LoggedModel) -> Message:
    return {"model": presenters.serialize_logged_model(row)}


def create_registered(caller: Caller, body: messages.CreateRegistered) -> Message:
    row = registry.create_registered(caller, body.name, body.description, to_dict(body.tags))
    return {"registered_model": presenters.serialize_registered(row)}


def get_registered(caller: Caller, body: messages.ModelName) -> Message:
    return _show_registered(caller, body.name)


def _show_registered(caller: Caller, name: str) -> Message:
    latest = registry.list_latest_versions(caller, name, ())
    return {"registered_model": presenters.serialize_registered(registry.find_registered(caller, name), latest)}


def update_registered(caller: Caller, body: messages.UpdateRegistered) -> Message:
    registry.change_registered(caller, body.name, description=body.description)
    return _show_registered(caller, body.name)


def rename_registered(caller: Caller, body: messages.RenameRegistered) -> Message:
    registry.change_registered(caller, body.name, new_name=body.new_name)
    return _show_registered(caller, body.new_name)


def delete_registered(caller: Caller, body: messages.ModelName) -> Message:
    registry.delete_registered(caller, body.name)
    return {}


def search_registered(caller: Caller, body: messages.Page) -> Message:
    start, count = read_page(body.page_token, body.max_results)
    rows = registry.list_registered(caller, _read_conditions(body.filter, {"name": "name"}), start, count + 1)
    return {
        "registered_models": [
            presenters.serialize_registered(row, registry.list_latest_versions(caller, row.name, ()))
            for row in rows[:count]
        ],
        **make_token(rows, start, count),
    }


def get_latest_versions(caller: Caller, body: messages.LatestVersions) -> Message:
    rows = registry.list_latest_versions(caller, body.name, body.stages)
    return {"model_versions": [presenters.serialize_version(row) for row in rows]}


def set_registered_tag(caller: Caller, body: messages.RegisteredTag) -> Message:
    registry.change_registered(caller, body.name, tags={body.key: body.value})
    return {}


def delete_registered_tag(caller: Caller, body: messages.RegisteredTag) -> Message:
    registry.change_registered(caller, body.name, tags={body.key: None})
    return {}


def set_alias(caller: Caller, body: messages.SetAlias) -> Message:
    registry.change_registered(caller, body.name, alias=(body.alias, body.version))
    return {}


def delete_alias(caller: Caller, body: messages.Alias) -> Message:
    registry.change_registered(caller, body.name, alias=(body.alias, None))
    return {}


def get_version_by_alias(caller: Caller, body: messages.Alias) -> Message:
    return _show_version(registry.find_version_by_alias(caller, body.name, body.alias))


def create_version(caller: Caller, body: messages.CreateVersion) -> Message:
    row = registry.create_version(
        caller, body.name, body.source, body.run_id, body.model_id, body.description, to_dict(body.tags)
    )
    return _show_version(row)


def get_version(caller: Caller, body: messages.VersionKey) -> Message:
    return _show_version(registry.find_version(caller, body.name, body.version))


def get_download_uri(caller: Caller, body: messages.VersionKey) -> Message:
    return {"artifact_uri": registry.find_version(caller, body.name, body.version).source}


def update_version(caller: Caller, body: messages.UpdateVersion) -> Message:
    return _show_version(registry.change_version(caller, body.name, body.version, description=body.description))


def transition_version(caller: Caller, body: messages.TransitionVersion) -> Message:
    row = registry.change_version(
        caller, body.name, body.version, stage=body.stage, archives_others=body.archive_existing_versions
    )
    return _show_version(row)


def delete_version(caller: Caller, body: messages.VersionKey) -> Message:
    registry.delete_version(caller, body.name, body.version)
    return {}


def search_versions(caller: Caller, body: messages.Page) -> Message:
    columns = {"name": "model__name", "run_id": "run_id", "source_path": "source", "version_number": "version"}
    start, count = read_page(body.page_token, body.max_results)
    rows = registry.list_versions(caller, _read_conditions(body.filter, columns), start, count + 1)
    return {
        "model_versions": [presenters.serialize_version(row) for row in rows[:count]],
        **make_token(rows, start, count),
    }


def set_version_tag(caller: Caller, body: messages.VersionTag) -> Message:
    registry.change_version(caller, body.name, body.version, tags={body.key: body.value})
    return {}


def delete_version_tag(caller: Caller, body: messages.VersionTag) -> Message:
    registry.change_version(caller, body.name, body.version, tags={body.key: None})
    return {}


def _show_version(row: ModelVersion) -> Message:
    return {"model_version": presenters.serialize_version(row)}


def _read_conditions(text: str, columns: dict[str, str]) -> dict[str, Any]:
    """Return a filter as conditions of a query. Raises ApiError 400."""
    found: dict[str, Any] = {}
    for condition in read_filter(text):
        column = columns.get(condition.key)
        if condition.kind != "attribute" or column is None:
            raise refuse_name(condition.key, ", ".join(columns))
        match condition.operator:
            case "=" | "IN":
                values: list[Any] = list(condition.values)
                if column == "version":
                    values = [int(value) for value in values if value.isdigit() and len(value) < 10]
                found[f"{column}__in"] = values
            case "LIKE" | "ILIKE":
                sign = "__iregex" if condition.operator == "ILIKE" else "__regex"
                found[f"{column}{sign}"] = experiments.translate_pattern(condition.values[0])
            case _:
                raise refuse_name(f"{condition.key} {condition.operator}", ", ".join(columns))
    return found
