"""Queries of datasets and models, as the API returns them."""

from collections.abc import Mapping
from typing import Any

from django.db.models import F, Prefetch, Q, QuerySet

from apps.accounts import access
from apps.accounts.models import User
from apps.catalog.models import Dataset, DatasetVersion, Model
from apps.common.texts import serialize_error


def list_datasets(user: User, filters: Mapping[str, Any]) -> QuerySet[Dataset]:
    """Return the datasets that the user may use, with their versions, newest first; for `serialize_dataset`."""
    newest = Prefetch("versions", DatasetVersion.objects.order_by("-created_at", "pk"))
    return _filter_rows(access.filter_visible(Dataset.objects.all(), user, shared=True), filters).prefetch_related(
        newest
    )


def serialize_dataset(dataset: Dataset) -> dict[str, Any]:
    return {
        "id": dataset.pk,
        "name": dataset.name,
        "description": dataset.description,
        "projectId": dataset.project_id,
        "createdAt": dataset.created_at,
        "versions": [serialize_version(version) for version in dataset.versions.all()],
    }


def serialize_version(version: DatasetVersion) -> dict[str, Any]:
    return {
        "id": version.pk,
        "datasetId": version.dataset_id,
        "name": version.name,
        "status": version.status,
        "progress": version.progress,
        "source": version.source,
        "trainTokens": version.train_tokens,
        "validTokens": version.valid_tokens,
        "sizeBytes": version.size_bytes,
        "sha256": version.sha256,
        "error": serialize_error(version.error),
        "createdAt": version.created_at,
    }


def list_models(user: User, filters: Mapping[str, Any]) -> QuerySet[Model, Any]:
    rows = _filter_rows(access.filter_visible(Model.objects.all(), user, shared=True), filters)
    return rows.values(
        "id",
        "name",
        "description",
        "recipe",
        "parameters",
        "defaults",
        projectId=F("project_id"),
        createdAt=F("created_at"),
    )


def _filter_rows(rows: QuerySet[Any], filters: Mapping[str, Any]) -> QuerySet[Any]:
    if project := filters.get("project"):
        rows = rows.filter(Q(project=project) | Q(project=None))
    if word := filters.get("search"):
        rows = rows.filter(Q(name__icontains=word) | Q(pk__icontains=word) | Q(description__icontains=word))
    return rows
