"""The image of an environment cannot be pulled."""

from tests.fakes.kubernetes import Waits
from tests.faults.catalogue.fault import Expected, Fault, FaultRun
from tests.faults.catalogue.faults.pod_evicted import SCRIPT
from tests.polling import until


def refuse_image(run: FaultRun) -> None:
    cluster, _ = run.fault_lab.kubernetes
    said = 'Back-off pulling image "training:1": not found'
    cluster.script(f"{run.task_id}-*", Waits("ImagePullBackOff", said))
    until(lambda: cluster.pods(f"{run.task_id}-*"), what="its pods")
    run.stamp()


FAULT = Fault(
    SCRIPT,
    Expected("IMAGE_UNAVAILABLE", says=["image", "training:1"]),
    environments=lambda run: run.fault_lab.on_kubernetes(run),
    inject=refuse_image,
)
