"""A host loses its power."""

from tests import netlab
from tests.faults.catalogue.fault import Expected, Fault, FaultRun
from tests.faults.catalogue.faults.link_dead import SCRIPT


def start_hosts(run: FaultRun) -> list[str]:
    site, ids = run.fault_lab.hosts(run, 2)
    run.site = site
    return ids


def disconnect_host(run: FaultRun) -> None:
    run.reached("training", 120)
    run.site.lab.run(1, "ip", "link", "set", "eth0", "down")
    run.stamp()
    run.site.lose(1)


FAULT = Fault(
    SCRIPT,
    Expected("WORKER_LOST|NODE_LOST|ENVIRONMENT_UNAVAILABLE", node=1),
    environments=start_hosts,
    inject=disconnect_host,
    needs=netlab.missing,
)
