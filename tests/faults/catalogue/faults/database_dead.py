"""Nobody can write to the database for some seconds, and a rank fails meanwhile."""

import sqlite3
import time

from tests.faults.catalogue.fault import Expected, Fault, FaultRun


def lock_database(run: FaultRun) -> None:
    run.reached("training")
    database = sqlite3.connect(run.platform.data / "fermi.sqlite3", isolation_level=None)
    database.execute("BEGIN EXCLUSIVE")
    run.go("fail")
    time.sleep(6)  # as long as the database is away
    database.execute("ROLLBACK")
    database.close()


FAULT = Fault(
    """
from gang import RANK, Gang, knowable, reached, when

gang = Gang()
for step in range(10):
    gang.step()
reached("training")
when("fail")
if RANK == 1:
    knowable()
    raise ValueError("label 12 of 10 classes")  # here
for step in range(1000):
    gang.step()
""",
    Expected("RANK_FAILED", rank=1, node=1, says=["ValueError", "label 12 of 10 classes", "train.py:{here}"]),
    inject=lock_database,
    alone=True,
)
