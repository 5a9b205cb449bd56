"""A file is not there."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from knowable import RANK, knowable, when

def load_tokenizer(path):
    return open(path)  # here

if RANK == 1:
    knowable()
    load_tokenizer("/data/llama/tokenizer.model")
when("never")
""",
    Expected("RANK_FAILED", rank=1, node=1, says=["/data/llama/tokenizer.model", "train.py:{here}", "load_tokenizer"]),
)
