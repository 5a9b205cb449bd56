"""Lists the frameworks, and the clusters on which each is installed."""

from collections.abc import Sequence
from typing import Any

from apps.accounts.models import User
from apps.clusters import selectors as clusters
from apps.clusters.models import Cluster
from apps.common.texts import get_request_language, render_text
from apps.training.core.engine_access import get_backend
from fermi.engines.base import Backend
from fermi.frameworks import texts
from fermi.frameworks.base import Framework
from fermi.jobs.errors import BackendError, UnknownNameError
from fermi.jobs.spec import Node
from fermi.planning import installed, plugins

MAX_NODES_CHECKED = 200
"""Most environments that are checked in a cluster whose nodes differ."""

ClusterNodes = tuple[Cluster, Backend, Sequence[Node]]


def list_frameworks(user: User) -> list[dict[str, Any]]:
    """Return all frameworks as the API answers them, in the language of the request."""
    places, lang = _list_clusters(user), get_request_language()
    return [_serialize_framework(framework, places, lang) for framework in plugins.list_frameworks()]


def _list_clusters(user: User) -> list[ClusterNodes]:
    """Return the clusters of the environments that the user may see, with the nodes to check in each."""
    mine = clusters.list_visible_environments(user)
    found: list[ClusterNodes] = []
    for cluster in Cluster.objects.filter(pk__in=mine.values("cluster")).order_by("pk"):
        try:
            backend = get_backend(cluster)
        except (BackendError, UnknownNameError):
            continue
        rows = mine.filter(cluster=cluster).select_related("zone").order_by("pk")
        found.append((cluster, backend, clusters.build_nodes(rows[: 1 if backend.alike else MAX_NODES_CHECKED])))
    return found


def _serialize_framework(framework: Framework, clusters: Sequence[ClusterNodes], lang: str) -> dict[str, Any]:
    low, high = framework.info.model_size
    where = [_check_cluster(framework, *place) for place in clusters]
    return {
        "value": framework.name,
        "aliases": plugins.list_aliases(framework.name),
        "label": framework.info.label,
        "description": texts.get_description(framework, lang),
        "parallelism": framework.info.parallelism,
        "modelSize": {"min": low, "max": high},
        "options": texts.translate_options(framework, lang),
        "available": not where or any(one["available"] is not False for one in where),
        "clusters": where,
    }


def _check_cluster(framework: Framework, cluster: Cluster, backend: Backend, nodes: Sequence[Node]) -> dict[str, Any]:
    """Return whether the framework is available in the cluster: it is if one node has all that is needed."""
    info = framework.info
    lacks = [installed.list_missing_packages(backend, node, [info.stack, *info.packages]) for node in nodes]
    least = min((one for one in lacks if one is not None), key=len, default=None)
    known = True if least == [] else None if None in lacks or least is None else False
    problem = installed.build_missing_problem(info, least, cluster.name) if known is False and least else None
    message, hint = render_text(problem.code, problem.params) if problem else ("", "")
    return {
        "clusterId": cluster.pk,
        "available": known,
        "lacks": least if known is False else [],
        "message": message,
        "hint": hint,
    }
