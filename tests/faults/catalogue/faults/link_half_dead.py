"""What one node sends to another is lost; the other way goes."""

from tests import netlab
from tests.faults.catalogue.fault import Expected, Fault, FaultRun
from tests.faults.catalogue.faults.link_dead import SCRIPT, start_hosts


def cut_link_one_way(run: FaultRun) -> None:
    run.reached("training", 120)
    lab = run.site.lab
    lab.drop(1, "-s", lab.address(0))
    run.stamp()


FAULT = Fault(
    SCRIPT,
    Expected("NETWORK_CUT", node=(0, 1)),
    environments=start_hosts,
    inject=cut_link_one_way,
    needs=netlab.missing,
)
