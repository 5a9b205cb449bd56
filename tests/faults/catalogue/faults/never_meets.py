"""One rank is stuck before it joins; the patience of its task is short."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
import threading
from gang import RANK, Gang, knowable

def download_tokenizer():
    knowable()
    threading.Event().wait()  # here

if RANK == 1:
    download_tokenizer()
Gang()
""",
    Expected("HANG", rank=1, node=1, says=["download_tokenizer", "train.py:{here}"]),
    request={"hangSeconds": 8},
)
