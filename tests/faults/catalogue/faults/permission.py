"""A file must not be read by whom the rank runs as."""

from tests.faults.catalogue.fault import Expected, Fault, Scene


def forbid(scene: Scene) -> None:
    secret = scene.ground.scratch / f"{scene.slug}-theirs"
    secret.mkdir(mode=0o700)
    (secret / "weights.bin").write_bytes(b"weights")
    (scene.folder / "path").write_text(str(secret / "weights.bin"))
    scene.go("forbidden")


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
    inject=forbid,
)
