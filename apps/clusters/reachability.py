"""Records whether a cluster's engine answers."""

from apps.clusters.models import Cluster
from apps.common.clock import now
from fermi.jobs.errors import BackendError


def record_unreachable(cluster: Cluster, error: BackendError) -> None:
    """Record that the engine did not answer. Writes only if it had answered before."""
    if cluster.away_since is None:
        cluster.away_since = now()
        why = {"code": error.code, "params": dict(error.params)}
        Cluster.objects.filter(pk=cluster.pk, away_since=None).update(away_since=cluster.away_since, away_why=why)


def record_reachable(cluster: Cluster) -> None:
    """Record that the engine answers again. Writes only if it had not."""
    if cluster.away_since is not None:
        Cluster.objects.filter(pk=cluster.pk).update(away_since=None, away_why={})
        cluster.away_since = None
