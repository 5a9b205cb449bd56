"""A node runs out of memory and Kubernetes evicts the pod."""

from typing import Any

from tests.faults.catalogue.fault import Expected, Fault, FaultRun

SCRIPT = """
import time
from knowable import RANK, reached

if RANK == 1:
    reached("training")
for step in range(10000):
    print(f"step {step}", flush=True)
    time.sleep(0.1)
"""


def find_pod(run: FaultRun, node: int) -> dict[str, Any]:
    cluster, _ = run.fault_lab.kubernetes
    found = cluster.pods(f"{run.task_id}-*")
    return next(pod for pod in found if pod["spec"]["nodeName"] == f"{run.nodes[node]}-machine")


def evict_pod(run: FaultRun) -> None:
    run.reached("training")
    cluster, _ = run.fault_lab.kubernetes
    run.stamp()
    cluster.evict(find_pod(run, 1))


FAULT = Fault(
    SCRIPT,
    Expected("EVICTED", node=1, says=["memory"]),
    environments=lambda run: run.fault_lab.on_kubernetes(run),
    inject=evict_pod,
)
