"""The network between two nodes is cut in the middle of training."""

from tests import netlab
from tests.faults.catalogue.fault import Expected, Fault, FaultRun

SCRIPT = """
from gang import Gang, RANK, reached

gang = Gang()
for step in range(20000):
    gang.step()
    if step == 60 and RANK == 0:
        reached("training")
"""


def start_hosts(run: FaultRun) -> list[str]:
    site, ids = run.fault_lab.hosts(run, 3)
    run.site = site
    return ids


def cut_link(run: FaultRun) -> None:
    run.reached("training", 120)
    lab = run.site.lab
    lab.drop(1, "-s", lab.address(2))
    lab.drop(2, "-s", lab.address(1))
    run.stamp()


FAULT = Fault(
    SCRIPT,
    Expected("NETWORK_CUT", node=(1, 2)),
    environments=start_hosts,
    inject=cut_link,
    needs=netlab.missing,
)
