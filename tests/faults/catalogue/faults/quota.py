"""The namespace's quota has no room for the task's pods."""

from tests.fakes.kubernetes.resources import QUOTAS
from tests.faults.catalogue.fault import Expected, Fault, FaultRun
from tests.faults.catalogue.faults.pod_evicted import SCRIPT


def set_pod_quota(run: FaultRun) -> list[str]:
    ids = run.fault_lab.on_kubernetes(run)
    cluster, _ = run.fault_lab.kubernetes
    cluster.add_quota("small", {"count/pods": "0"})
    run.after.callback(cluster.api.delete, QUOTAS, cluster.namespace, "small", {})
    return ids


def wait_for_quota(run: FaultRun) -> None:
    cluster, _ = run.fault_lab.kubernetes
    run.until(lambda: any(name.startswith(run.task_id) for name in cluster.names("jobs")), what="its jobs")
    run.stamp()


FAULT = Fault(
    SCRIPT,
    Expected("QUOTA_EXCEEDED", says=["quota"]),
    environments=set_pod_quota,
    inject=wait_for_quota,
    ends=(),
    alone=True,
)
