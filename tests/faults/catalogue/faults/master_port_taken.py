"""Another process of the first node listens on the port that the ranks are to meet at, on a host with addresses of its
own, where nobody else's ports are known before."""

import socket

from tests.faults.catalogue.fault import Expected, Fault, FaultRun


def occupy_master_port(run: FaultRun) -> list[str]:
    ids = run.fault_lab.on_kubernetes(run)
    port = run.request["distributedConfig"]["masterPort"]
    run.after.enter_context(socket.create_server(("", port)))
    return ids


def wait_for_attempt(run: FaultRun) -> None:
    run.until(lambda: run.task()["attempts"], what="its first attempt")
    run.stamp()


FAULT = Fault(
    """
from gang import Gang

gang = Gang()
""",
    Expected("MASTER_PORT_TAKEN", node=0, says=["port", "pid"]),
    environments=occupy_master_port,
    inject=wait_for_attempt,
    ends=(),  # such an end is nobody's fault, so it is tried again
)
