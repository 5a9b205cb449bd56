"""Somebody cancels the Slurm job."""

from tests import slurm
from tests.faults.catalogue.fault import Expected, Fault, FaultRun
from tests.faults.catalogue.faults.pod_evicted import SCRIPT


def cancel_job(run: FaultRun) -> None:
    run.reached("training")
    lab, _ = run.fault_lab.slurm
    run.stamp()
    lab.command("scancel", f"--name={run.task_id}-1")


FAULT = Fault(
    SCRIPT,
    Expected("JOB_CANCELLED", says=["cancel"]),
    environments=lambda run: run.fault_lab.on_slurm(run),
    inject=cancel_job,
    needs=slurm.why_not,
)
