"""Another process of the node listens where the script wants to."""

import os
import socket

from tests.faults.catalogue.fault import Expected, Fault, FaultRun


def occupy_port(run: FaultRun) -> None:
    holder = run.after.enter_context(socket.create_server(("127.0.0.1", 0)))
    (run.folder / "port").write_text(str(holder.getsockname()[1]))
    (run.folder / "holder").write_text(str(os.getpid()))
    run.go("taken")


FAULT = Fault(
    """
import os, socket
from knowable import RANK, knowable, when

when("taken")
if RANK == 1:
    port = int(open(os.path.join(os.path.dirname(__file__), "port")).read())
    knowable()
    socket.create_server(("127.0.0.1", port))  # here
when("never")
""",
    Expected("RANK_FAILED", rank=1, node=1, says=["address already in use|port", "train.py:{here}"],
             shows=["python|pid|held by"]),
    inject=occupy_port,
)  # fmt: skip
