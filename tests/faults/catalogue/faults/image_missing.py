"""The image of an environment cannot be pulled."""

from tests.fakes.kubernetes import Waits
from tests.faults.catalogue.fault import Expected, Fault, Scene
from tests.faults.catalogue.faults.pod_evicted import SCRIPT
from tests.polling import until


def refuse(scene: Scene) -> None:
    cluster, _ = scene.ground.kubernetes
    said = 'Back-off pulling image "training:1": not found'
    cluster.script(f"{scene.task_id}-*", Waits("ImagePullBackOff", said))
    until(lambda: cluster.pods(f"{scene.task_id}-*"), what="its pods")
    scene.stamp()


FAULT = Fault(
    SCRIPT,
    Expected("IMAGE_UNAVAILABLE", says=["image", "training:1"]),
    environments=lambda scene: scene.ground.on_kubernetes(scene),
    inject=refuse,
)
