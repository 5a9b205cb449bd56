"""Endpoints of datasets and models."""

from apps.accounts import access
from apps.catalog import selectors, services
from apps.catalog.api import serializers as shapes
from apps.catalog.models import Dataset
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.errors import ApiError


class DatasetsView(APIView):
    @operation("listDatasets", scope="data:read", query=shapes.CatalogQuery, page=shapes.DatasetItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the datasets that your projects may use, with their versions."""
        return paginate_rows(selectors.list_datasets(request.user, query), query, selectors.serialize_dataset)

    @operation("addDataset", scope="data:write", body=shapes.DatasetCreateRequest, data=shapes.DatasetItem, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """Add a dataset from a path on the server (maintainer; administrator for one that belongs to no project)."""
        return _serialize_dataset(request, services.add_dataset(request.user, **body).pk)


class DatasetView(APIView):
    @operation("getDataset", scope="data:read", data=shapes.DatasetItem)
    def get(self, request: Request, dataset_id: str) -> Data:
        """Return one dataset with its versions."""
        return _serialize_dataset(request, dataset_id)


class VersionsView(APIView):
    @operation("listDatasetVersions", scope="data:read", query=shapes.VersionQuery, page=shapes.DatasetVersionItem)
    def get(self, request: Request, dataset_id: str, query: Query) -> Data:
        """List the versions of a dataset."""
        dataset = access.get_object(Dataset.objects.all(), request.user, dataset_id, shared=True)
        versions = dataset.versions.filter(name__icontains=query["search"])
        return paginate_rows(versions, query, selectors.serialize_version)

    @operation(
        "addDatasetVersion",
        scope="data:write",
        body=shapes.VersionCreateRequest,
        data=shapes.DatasetVersionItem,
        status=201,
    )
    def post(self, request: Request, dataset_id: str, body: Body) -> Data:
        """Add a version of a dataset from a path on the server (maintainer). 409 where the version's name is taken."""
        dataset = access.get_object(Dataset.objects.all(), request.user, dataset_id, shared=True)
        return selectors.serialize_version(services.add_version(request.user, dataset, **body))


class ModelsView(APIView):
    @operation("listModels", scope="data:read", query=shapes.CatalogQuery, page=shapes.ModelItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the models that your projects may train."""
        return paginate_rows(selectors.list_models(request.user, query), query)

    @operation("addModel", scope="data:write", body=shapes.ModelCreateRequest, data=shapes.ModelItem, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """Add a model: a recipe with default options (maintainer; administrator for one that belongs to no project)."""
        model = services.add_model(request.user, **body)
        return selectors.list_models(request.user, {}).get(pk=model.pk)


def _serialize_dataset(request: Request, dataset_id: str) -> Data:
    dataset = selectors.list_datasets(request.user, {}).filter(pk=dataset_id).first()
    if dataset is None:
        raise ApiError(404, "NOT_FOUND")
    return selectors.serialize_dataset(dataset)
