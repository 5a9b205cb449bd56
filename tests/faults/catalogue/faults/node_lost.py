"""A node of the cluster falls silent."""

from tests.faults.catalogue.fault import Expected, Fault, Scene
from tests.faults.catalogue.faults.pod_evicted import SCRIPT


def lose(scene: Scene) -> None:
    scene.reached("training")
    cluster, _ = scene.ground.kubernetes
    scene.stamp()
    cluster.lose_node(f"{scene.nodes[1]}-machine")


FAULT = Fault(
    SCRIPT,
    Expected("NODE_LOST", node=1),
    environments=lambda scene: scene.ground.on_kubernetes(scene),
    inject=lose,
)
