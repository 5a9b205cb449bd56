"""A node of the cluster falls silent."""

from tests.faults.catalogue.fault import Expected, Fault, FaultRun
from tests.faults.catalogue.faults.pod_evicted import SCRIPT


def lose_node(run: FaultRun) -> None:
    run.reached("training")
    cluster, _ = run.fault_lab.kubernetes
    run.stamp()
    cluster.lose_node(f"{run.nodes[1]}-machine")


FAULT = Fault(
    SCRIPT,
    Expected("NODE_LOST", node=1),
    environments=lambda run: run.fault_lab.on_kubernetes(run),
    inject=lose_node,
)
