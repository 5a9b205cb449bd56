"""A file must not be read by whom the rank runs as."""

from tests.faults.catalogue.fault import Expected, Fault, FaultRun


def make_unreadable_file(run: FaultRun) -> None:
    secret = run.fault_lab.scratch / f"{run.slug}-theirs"
    secret.mkdir(mode=0o700)
    (secret / "weights.bin").write_bytes(b"weights")
    (run.folder / "path").write_text(str(secret / "weights.bin"))
    run.go("forbidden")


FAULT = Fault(
    """
import os
from knowable import RANK, knowable, when

def load_weights(path):
    if os.geteuid() == 0:
        os.seteuid(65534)  # root may read everything
    try:
        return open(path)  # here
    finally:
        os.seteuid(os.getuid())

when("forbidden")
if RANK == 1:
    path = open(os.path.join(os.path.dirname(__file__), "path")).read()
    knowable()
    load_weights(path)
when("never")
""",
    Expected("RANK_FAILED", rank=1, node=1, says=["permission", "weights.bin", "train.py:{here}"]),
    inject=make_unreadable_file,
)
