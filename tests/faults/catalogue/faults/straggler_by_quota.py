"""A container gets a fraction of a processor: one rank computes slowly and all wait for it."""

from tests.faults.catalogue import cgroups
from tests.faults.catalogue.fault import Expected, Fault, FaultRun


def limit_processor(run: FaultRun) -> None:
    run.reached("training")
    run.fault_lab.group(run, cpu="0.05").add(run.pid(2))
    run.stamp()


FAULT = Fault(
    """
from gang import Gang, reached, torch

gang, work = Gang(pace=0.08), torch.randn(200, 200)
for step in range(5000):
    for _ in range(200):
        work = torch.tanh(work @ work)
    gang.step()
    if step == 80:
        reached("training")
""",
    Expected("STRAGGLER", rank=2, node=1),
    gpus=(2, 1),
    inject=limit_processor,
    ends=(),
    needs=cgroups.find_obstacle,
)
