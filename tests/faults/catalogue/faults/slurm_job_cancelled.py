"""Somebody cancels the Slurm job."""

from tests import slurm
from tests.faults.catalogue.fault import Expected, Fault, Scene
from tests.faults.catalogue.faults.pod_evicted import SCRIPT


def cancel(scene: Scene) -> None:
    scene.reached("training")
    lab, _ = scene.ground.slurm
    scene.stamp()
    lab.command("scancel", f"--name={scene.task_id}-1")


FAULT = Fault(
    SCRIPT,
    Expected("JOB_CANCELLED", says=["cancel"]),
    environments=lambda scene: scene.ground.on_slurm(scene),
    inject=cancel,
    needs=slurm.why_not,
)
