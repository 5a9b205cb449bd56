"""A module is installed nowhere."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from knowable import knowable
knowable()
import flash_attention_of_tomorrow  # here
""",
    Expected("RANK_FAILED", says=["flash_attention_of_tomorrow", "train.py:{here}", "install"]),
)
