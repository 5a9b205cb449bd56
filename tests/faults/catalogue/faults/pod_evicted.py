"""A node runs out of memory and Kubernetes evicts the pod."""

from typing import Any

from tests.faults.catalogue.fault import Expected, Fault, Scene

SCRIPT = """
import time
from knowable import RANK, reached

if RANK == 1:
    reached("training")
for step in range(10000):
    print(f"step {step}", flush=True)
    time.sleep(0.1)
"""


def pod_of(scene: Scene, node: int) -> dict[str, Any]:
    cluster, _ = scene.ground.kubernetes
    found = cluster.pods(f"{scene.task_id}-*")
    return next(pod for pod in found if pod["spec"]["nodeName"] == f"{scene.nodes[node]}-machine")


def evict(scene: Scene) -> None:
    scene.reached("training")
    cluster, _ = scene.ground.kubernetes
    scene.stamp()
    cluster.evict(pod_of(scene, 1))


FAULT = Fault(
    SCRIPT,
    Expected("EVICTED", node=1, says=["memory"]),
    environments=lambda scene: scene.ground.on_kubernetes(scene),
    inject=evict,
)
