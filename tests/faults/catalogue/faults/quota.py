"""The namespace's quota has no room for the task's pods."""

from tests.fakes.kubernetes.resources import QUOTAS
from tests.faults.catalogue.fault import Expected, Fault, Scene
from tests.faults.catalogue.faults.pod_evicted import SCRIPT


def begin(scene: Scene) -> list[str]:
    ids = scene.ground.on_kubernetes(scene)
    cluster, _ = scene.ground.kubernetes
    cluster.add_quota("small", {"count/pods": "0"})
    scene.after.callback(cluster.api.delete, QUOTAS, cluster.namespace, "small", {})
    return ids


def wait(scene: Scene) -> None:
    cluster, _ = scene.ground.kubernetes
    scene.until(lambda: any(name.startswith(scene.task_id) for name in cluster.names("jobs")), what="its jobs")
    scene.stamp()


FAULT = Fault(
    SCRIPT,
    Expected("QUOTA_EXCEEDED", says=["quota"]),
    environments=begin,
    inject=wait,
    ends=(),
    alone=True,
)
