"""Requests of MLflow's REST API, with the bounds of their fields. Numbers may come as texts: protobuf's JSON writes
64 bit integers, and what is no finite number, as such."""

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from apps.common.errors import ApiError

MAX_BATCH, MAX_PARAMETERS, MAX_TAGS = 1000, 100, 100
"""Of one request (`log-batch`), as MLflow has them."""

Id = Annotated[str, Meta(max_length=256)]
Key = Annotated[str, Meta(min_length=1, max_length=250)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]
OptionalName = Annotated[str, Meta(max_length=256)]
Text = Annotated[str, Meta(max_length=8000)]
Filter = Annotated[str, Meta(max_length=4000)]
Integer = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Count = Annotated[int, Meta(ge=1, le=50_000)]
Version = Annotated[int, Meta(ge=1, le=1 << 31)]

R = TypeVar("R", bound=Struct)


class Pair(Struct):
    key: Key
    value: Text = ""


class MetricMessage(Struct):
    key: Key
    value: Any
    timestamp: Integer = 0
    step: Integer = 0
    model_id: Id = ""
    dataset_name: OptionalName = ""
    dataset_digest: OptionalName = ""


Pairs = Annotated[list[Pair], Meta(max_length=MAX_BATCH)]


class Empty(Struct):
    pass


class ExperimentName(Struct):
    experiment_name: Name


class CreateExperiment(Struct):
    name: Name
    artifact_location: Text = ""
    tags: Annotated[list[Pair], Meta(max_length=MAX_TAGS)] = []


class Page(Struct):
    max_results: Count = 1000
    page_token: Annotated[str, Meta(max_length=20, pattern=r"^[0-9]*$")] = ""
    filter: Filter = ""
    order_by: Annotated[list[Filter], Meta(max_length=5)] = []
    view_type: Annotated[str, Meta(max_length=20)] = "ACTIVE_ONLY"


class ExperimentKey(Struct):
    experiment_id: Id


class ExperimentTag(Struct):
    experiment_id: Id
    key: Key
    value: Text = ""


class CreateRun(Struct):
    experiment_id: Id = ""
    user_id: OptionalName = ""
    run_name: Text = ""
    start_time: Integer = 0
    tags: Annotated[list[Pair], Meta(max_length=MAX_BATCH)] = []


class RunKey(Struct):
    run_id: Id = ""
    run_uuid: Id = ""


class UpdateRun(RunKey):
    status: str | int = ""
    end_time: Integer = 0
    run_name: Text = ""


class LogMetric(RunKey, kw_only=True):
    key: Key
    value: Any
    timestamp: Integer = 0
    step: Integer = 0
    model_id: Id = ""
    dataset_name: OptionalName = ""
    dataset_digest: OptionalName = ""


class RunPair(RunKey, kw_only=True):
    key: Key
    value: Text = ""


class LogBatch(RunKey):
    metrics: Annotated[list[MetricMessage], Meta(max_length=MAX_BATCH)] = []
    params: Pairs = []
    tags: Pairs = []


class SearchRuns(Struct):
    experiment_ids: Annotated[list[Id], Meta(max_length=1000)] = []
    filter: Filter = ""
    run_view_type: Annotated[str, Meta(max_length=20)] = "ACTIVE_ONLY"
    max_results: Count = 1000
    order_by: Annotated[list[Filter], Meta(max_length=5)] = []
    page_token: Annotated[str, Meta(max_length=20, pattern=r"^[0-9]*$")] = ""


class ListRunArtifacts(RunKey):
    path: Annotated[str, Meta(max_length=4096)] = ""
    page_token: Id = ""


class MetricHistory(RunKey, kw_only=True):
    metric_key: Key
    max_results: Count = 25_000
    page_token: Annotated[str, Meta(max_length=20, pattern=r"^[0-9]*$")] = ""


class Dataset(Struct):
    name: Name
    digest: OptionalName = ""
    source_type: OptionalName = ""
    source: Annotated[str, Meta(max_length=65_535)] = ""
    schema: Annotated[str, Meta(max_length=65_535)] = ""
    profile: Annotated[str, Meta(max_length=65_535)] = ""


class DatasetInput(Struct):
    dataset: Dataset
    tags: Annotated[list[Pair], Meta(max_length=MAX_TAGS)] = []


class ModelLink(Struct):
    model_id: Id
    step: Integer = 0


class LogInputs(RunKey):
    datasets: Annotated[list[DatasetInput], Meta(max_length=100)] = []
    models: Annotated[list[ModelLink], Meta(max_length=100)] = []


class LogOutputs(RunKey):
    models: Annotated[list[ModelLink], Meta(max_length=100)] = []


class LogModel(RunKey, kw_only=True):
    model_json: Annotated[str, Meta(max_length=500_000)]


class CreateLoggedModel(Struct):
    experiment_id: Id = ""
    name: OptionalName = ""
    model_type: OptionalName = ""
    source_run_id: Id = ""
    params: Pairs = []
    tags: Pairs = []


class FinalizeLoggedModel(Struct):
    status: str | int = ""


class ModelPairs(Struct):
    params: Pairs = []
    tags: Pairs = []


class SearchLoggedModels(Struct):
    experiment_ids: Annotated[list[Id], Meta(max_length=1000)] = []
    filter: Filter = ""
    max_results: Count = 100
    page_token: Annotated[str, Meta(max_length=20, pattern=r"^[0-9]*$")] = ""


class ListModelArtifacts(Struct):
    artifact_directory_path: Annotated[str, Meta(max_length=4096)] = ""


class CreateRegistered(Struct):
    name: Name
    description: Text = ""
    tags: Annotated[list[Pair], Meta(max_length=MAX_TAGS)] = []


class ModelName(Struct):
    name: Name


class UpdateRegistered(Struct):
    name: Name
    description: Text = ""


class RenameRegistered(Struct):
    name: Name
    new_name: Name


class LatestVersions(Struct):
    name: Name
    stages: Annotated[list[OptionalName], Meta(max_length=10)] = []


class RegisteredTag(Struct):
    name: Name
    key: Key
    value: Text = ""


class Alias(Struct):
    name: Name
    alias: Name


class SetAlias(Struct):
    name: Name
    alias: Name
    version: Version


class CreateVersion(Struct):
    name: Name
    source: Annotated[str, Meta(max_length=1000)] = ""
    run_id: Id = ""
    model_id: Id = ""
    description: Text = ""
    tags: Annotated[list[Pair], Meta(max_length=MAX_TAGS)] = []


class VersionKey(Struct):
    name: Name
    version: Version


class UpdateVersion(Struct):
    name: Name
    version: Version
    description: Text = ""


class TransitionVersion(Struct):
    name: Name
    version: Version
    stage: OptionalName
    archive_existing_versions: bool = False


class VersionTag(Struct):
    name: Name
    version: Version
    key: Key
    value: Text = ""


class ArtifactPath(Struct):
    path: Annotated[str, Meta(max_length=4096)] = ""


def read_message(kind: type[R], found: Any) -> R:
    """Return a request as its struct. Unknown fields are left out, as protobuf leaves them. Raises ApiError 400."""
    try:
        return msgspec.convert(found, kind, strict=False)
    except (msgspec.ValidationError, OverflowError) as error:
        raise ApiError(400, "MLFLOW_FIELD", detail=str(error)[:300]) from error


def read_number(value: Any) -> float:
    """Return a number of protobuf's JSON. Raises ApiError 400."""
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    raise ApiError(400, "MLFLOW_FIELD", "value", detail=f"a number is expected: {str(value)[:100]}")


def to_dict(pairs: list[Pair]) -> dict[str, str]:
    """Return names and values; the last value of a name counts."""
    return {pair.key: pair.value for pair in pairs}
