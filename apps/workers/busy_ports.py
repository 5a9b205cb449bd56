"""Ports of hosts that other programs listen on, as the agents last reported."""

from collections.abc import Collection, Mapping

from apps.workers.models import Worker

PORTS_KEY = "ports"
"""Key in the reported usage of one worker of a host: the ports that other programs listen on there."""


def list_busy_ports(nodes: Collection[str]) -> Mapping[str, Mapping[int, str]]:
    """Return by node the program that listens on each port; an empty name if the agent may not see it."""
    rows = Worker.objects.filter(node__in=nodes, report__usage__has_key=PORTS_KEY).values_list("node", "report__usage")
    return {node: {one["port"]: one.get("holder") or "" for one in usage[PORTS_KEY]} for node, usage in rows}
