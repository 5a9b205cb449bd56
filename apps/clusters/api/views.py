"""Endpoints of clusters, availability zones, and the summary of selected environments."""

from apps.clusters import selectors, services
from apps.clusters.api import serializers as shapes
from apps.clusters.models import Cluster
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.errors import ApiError


class EnvironmentSummaryView(APIView):
    @operation("summariseEnvironments", body=shapes.SummaryRequest, data=shapes.EnvironmentSummary)
    def post(self, request: Request, body: Body) -> Data:
        """What a choice of environments adds up to, and what is worth knowing about it."""
        return services.summarize_environments(request.user, **body)


class ZonesView(APIView):
    @operation("listZones", query=shapes.ZoneQuery, page=shapes.ZoneItem)
    def get(self, request: Request, query: Query) -> Data:
        """Availability zones, with what you may use in them."""
        return paginate_rows(selectors.list_zones(request.user).filter(name__icontains=query["search"]), query)


class ClustersView(APIView):
    @operation("listClusters", query=shapes.ClusterQuery, page=shapes.ClusterItem)
    def get(self, request: Request, query: Query) -> Data:
        """Where training runs."""
        rows = selectors.list_clusters(request.user).filter(name__icontains=query["search"])
        return paginate_rows(rows, query, selectors.serialize_cluster)

    @operation("createCluster", body=shapes.ClusterCreateRequest, data=shapes.ClusterItem, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """A further engine to train on (administrator)."""
        return _serialize_cluster(request, services.create_cluster(request.user, **body).pk)


class ClusterView(APIView):
    @operation("getCluster", data=shapes.ClusterItem)
    def get(self, request: Request, cluster_id: str) -> Data:
        """One cluster."""
        return _serialize_cluster(request, cluster_id)

    @operation("changeCluster", body=shapes.ClusterChangeRequest, partial=True, data=shapes.ClusterItem)
    def patch(self, request: Request, cluster_id: str, body: Body) -> Data:
        """Its name, or how it is reached (administrator)."""
        services.change_cluster(request.user, _get_cluster(cluster_id), body)
        return _serialize_cluster(request, cluster_id)

    @operation("deleteCluster")
    def delete(self, request: Request, cluster_id: str) -> None:
        """Forgets it, unless a task or an environment registered by hand is in it (administrator)."""
        services.delete_cluster(request.user, _get_cluster(cluster_id))


class ClusterCheckView(APIView):
    @operation("checkCluster", data=shapes.ClusterReport)
    def post(self, request: Request, cluster_id: str) -> Data:
        """Asks the engine whether it is fit to train on, and says what to do where it is not (administrator)."""
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
