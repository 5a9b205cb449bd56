"""Somebody drains a node of the cluster, as `kubectl drain` does."""

import httpx

from tests.fakes.kubernetes.cluster import TOKEN
from tests.faults.catalogue.fault import Expected, Fault, FaultRun
from tests.faults.catalogue.faults.pod_evicted import SCRIPT, find_pod


def drain_node(run: FaultRun) -> None:
    run.reached("training")
    cluster, _ = run.fault_lab.kubernetes
    cluster.cordon(f"{run.nodes[1]}-machine")
    meta = {"name": find_pod(run, 1)["metadata"]["name"], "namespace": cluster.namespace}
    url = f"{cluster.url}/api/v1/namespaces/{cluster.namespace}/pods/{meta['name']}/eviction"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    run.stamp()
    httpx.post(url, json=body, headers={"Authorization": f"Bearer {TOKEN}"}).raise_for_status()


FAULT = Fault(
    SCRIPT,
    Expected("EVICTED|POD_DELETED", node=1),
    environments=lambda run: run.fault_lab.on_kubernetes(run),
    inject=drain_node,
)
