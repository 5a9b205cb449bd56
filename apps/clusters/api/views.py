"""Endpoints of clusters, availability zones, and the summary of selected environments."""

from apps.clusters import selectors, services
from apps.clusters.api import serializers as shapes
from apps.clusters.models import Cluster
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.errors import ApiError


class EnvironmentSummaryView(APIView):
    @operation(
        "summariseEnvironments", scope="environments:read", body=shapes.SummaryRequest, data=shapes.EnvironmentSummary
    )
    def post(self, request: Request, body: Body) -> Data:
        """Return totals of the selected environments and remarks about the selection. Stores nothing."""
        return services.summarize_environments(request.user, **body)


class ZonesView(APIView):
    @operation("listZones", scope="any", query=shapes.ZoneQuery, page=shapes.ZoneItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the availability zones, with the environments in them that you may use."""
        return paginate_rows(selectors.list_zones(request.user).filter(name__icontains=query["search"]), query)


class ClustersView(APIView):
    @operation("listClusters", scope="clusters:read", query=shapes.ClusterQuery, page=shapes.ClusterItem)
    def get(self, request: Request, query: Query) -> Data:
        """List the clusters on which training runs."""
        rows = selectors.list_clusters(request.user).filter(name__icontains=query["search"])
        return paginate_rows(rows, query, selectors.serialize_cluster)

    @operation(
        "createCluster", scope="clusters:write", body=shapes.ClusterCreateRequest, data=shapes.ClusterItem, status=201
    )
    def post(self, request: Request, body: Body) -> Data:
        """Add a cluster (administrator). 409 where the name is taken."""
        return _serialize_cluster(request, services.create_cluster(request.user, **body).pk)


class ClusterView(APIView):
    @operation("getCluster", scope="clusters:read", data=shapes.ClusterItem)
    def get(self, request: Request, cluster_id: str) -> Data:
        """Return one cluster."""
        return _serialize_cluster(request, cluster_id)

    @operation(
        "changeCluster", scope="clusters:write", body=shapes.ClusterChangeRequest, partial=True, data=shapes.ClusterItem
    )
    def patch(self, request: Request, cluster_id: str, body: Body) -> Data:
        """Change a cluster's name or how it is reached (administrator). 409 where the name is taken."""
        services.change_cluster(request.user, _get_cluster(cluster_id), body)
        return _serialize_cluster(request, cluster_id)

    @operation("deleteCluster", scope="clusters:write")
    def delete(self, request: Request, cluster_id: str) -> None:
        """Delete a cluster (administrator). 409 while it has a task or an environment that was registered by hand."""
        services.delete_cluster(request.user, _get_cluster(cluster_id))


class ClusterCheckView(APIView):
    @operation("checkCluster", scope="clusters:write", data=shapes.ClusterReport, cost=10)
    def post(self, request: Request, cluster_id: str) -> Data:
        """Check whether training can run on a cluster, and return what to do where it cannot (administrator)."""
        return selectors.serialize_report(services.check_cluster(request.user, _get_cluster(cluster_id)))


def _get_cluster(cluster_id: str) -> Cluster:
    cluster = Cluster.objects.filter(pk=cluster_id).first()
    if cluster is None:
        raise ApiError(404, "NOT_FOUND")
    return cluster


def _serialize_cluster(request: Request, cluster_id: str) -> Data:
    row = selectors.list_clusters(request.user).filter(pk=cluster_id).first()
    if row is None:
        raise ApiError(404, "NOT_FOUND")
    return selectors.serialize_cluster(row)
