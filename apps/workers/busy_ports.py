"""Which ports of their hosts somebody else than training listens on, as the agents said last."""

from collections.abc import Collection, Mapping

from apps.workers.models import Worker

PORTS = "ports"
"""In what one worker of a host reports of its usage: those that others listen on there."""


def ports(nodes: Collection[str]) -> Mapping[str, Mapping[int, str]]:
    """Holder by port, by node; the holder is empty where the agent may not see it."""
    rows = Worker.objects.filter(node__in=nodes, report__usage__has_key=PORTS).values_list("node", "report__usage")
    return {node: {one["port"]: one.get("holder") or "" for one in usage[PORTS]} for node, usage in rows}
