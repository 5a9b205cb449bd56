"""Lists the frameworks, and the clusters on which each is installed."""

from collections.abc import Sequence
from typing import Any

from apps.accounts.models import User
from apps.clusters import selectors as clusters
from apps.clusters.models import Cluster
from apps.common.texts import language, text
from apps.training.core.engine_access import backend_for
from fermi.engines.base import Backend
from fermi.frameworks import texts
from fermi.frameworks.base import Framework
from fermi.jobs.errors import BackendError, UnknownName
from fermi.jobs.spec import Node
from fermi.planning import installed, plugins

MOST_ASKED = 200
"""Most environments that are checked in a cluster whose nodes differ."""

Place = tuple[Cluster, Backend, Sequence[Node]]


def listed(user: User) -> list[dict[str, Any]]:
    """Return all frameworks as the API answers them, in the language of the request."""
    places, lang = _places(user), language()
    return [_shown(framework, places, lang) for framework in plugins.frameworks()]


def _places(user: User) -> list[Place]:
    """Return the clusters of the environments that the user may see, with the nodes to check in each."""
    mine = clusters.seen_by(user)
    found: list[Place] = []
    for cluster in Cluster.objects.filter(pk__in=mine.values("cluster")).order_by("pk"):
        try:
            backend = backend_for(cluster)
        except (BackendError, UnknownName):
            continue
        rows = mine.filter(cluster=cluster).select_related("zone").order_by("pk")
        found.append((cluster, backend, clusters.snapshots(rows[: 1 if backend.alike else MOST_ASKED])))
    return found


def _shown(framework: Framework, places: Sequence[Place], lang: str) -> dict[str, Any]:
    low, high = framework.info.model_size
    where = [_on(framework, *place) for place in places]
    return {
        "value": framework.name,
        "aliases": plugins.aliases(framework.name),
        "label": framework.info.label,
        "description": texts.description(framework, lang),
        "parallelism": framework.info.parallelism,
        "modelSize": {"min": low, "max": high},
        "options": texts.options(framework, lang),
        "available": not where or any(one["available"] is not False for one in where),
        "clusters": where,
    }


def _on(framework: Framework, cluster: Cluster, backend: Backend, nodes: Sequence[Node]) -> dict[str, Any]:
    """Return whether the framework is available in the cluster: it is if one node has all that is needed."""
    info = framework.info
    lacks = [installed.lacking(backend, node, [info.stack, *info.packages]) for node in nodes]
    least = min((one for one in lacks if one is not None), key=len, default=None)
    known = True if least == [] else None if None in lacks or least is None else False
    problem = installed.missing(info, least, cluster.name) if known is False and least else None
    message, hint = text(problem.code, problem.params) if problem else ("", "")
    return {
        "clusterId": cluster.pk,
        "available": known,
        "lacks": least if known is False else [],
        "message": message,
        "hint": hint,
    }
