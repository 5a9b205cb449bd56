"""Decide whether a node's ranks can run inside of its environment's pod, and in a pod beside it. Pure: from what
discovery has found (`Node.engine`).

`engine["inside"]`: what was found there, `{"python": "/usr/bin/python3", "version": "3.11.9", …}`, or why it cannot be
entered, `{"why": "INSIDE_NO_PYTHON", "params": {…}}`. `engine["gpus"]`: of its node, `{"there": 8, "held": 8}`: how
many a device plugin offers, and how many running dev environments hold.
"""

from collections.abc import Mapping
from typing import Any

from fermi.engines.kubernetes import names, volumes
from fermi.jobs.run_location import RunLocations
from fermi.jobs.spec import JobSpec, Node, RunLocation


def find_run_locations(
    job: JobSpec, connection: Mapping[str, Any], namespace: str, data_problem: Mapping[str, Any] | None
) -> dict[str, RunLocations]:
    """Return the possibilities by node id. Nodes that were registered by hand, without a pod, can only be trained
    beside. `data_problem`: why what the job reads cannot be sent to environments that do not see it
    (`inside.upload.find_upload_problem`)."""
    return {
        node.id: RunLocations(
            _choose_default(node), _check_inside(node, connection, data_problem), _check_beside(node, namespace)
        )
        for node in job.nodes
        if node.engine.get("pod")
    }


def _choose_default(node: Node) -> RunLocation:
    if node.engine.get("resourceClaims"):
        return RunLocation(False, "WAY_BESIDE_CLAIM")
    if node.has_cuda:
        return RunLocation(True, "WAY_INSIDE_GPUS", {"gpus": node.gpu_count})
    return RunLocation(True, "WAY_INSIDE_RUNS")


def _check_inside(node: Node, connection: Mapping[str, Any], lacks: Mapping[str, Any] | None) -> RunLocation | None:
    if (namespace := str(node.engine.get("namespace") or "")) and namespace not in names.list_namespaces(connection):
        return RunLocation(False, "INSIDE_OTHER_NAMESPACE", {"found": namespace})
    found = node.engine.get("inside")
    if not found:
        return RunLocation(False, "INSIDE_NOT_LOOKED_AT")
    if why := found.get("why"):
        return RunLocation(False, str(why), found.get("params") or {})
    if not volumes.find_data_mount(node, connection) and lacks:
        return RunLocation(False, "INSIDE_WITHOUT_DATA", lacks)
    return None


def _check_beside(node: Node, namespace: str) -> RunLocation | None:
    if (found := str(node.engine.get("namespace") or namespace)) != namespace:
        return RunLocation(True, "BESIDE_OTHER_NAMESPACE", {"found": found, "namespace": namespace})
    gpus = node.engine.get("gpus") or {}
    if node.has_cuda and not node.engine.get("resourceClaims") and gpus:
        free = int(gpus["there"]) - int(gpus["held"])
        if free < node.gpu_count:
            params = {"gpus": node.gpu_count, "there": gpus["there"], "free": max(free, 0), "host": node.host}
            return RunLocation(True, "BESIDE_GPUS_HELD", params)
    return None
