"""A package refuses to work with the version that another one has."""

from tests.faults.catalogue.fault import Expected, Fault

FAULT = Fault(
    """
from knowable import RANK, knowable, when
if RANK == 0:
    knowable()
    import their_extension  # here
when("never")
""",
    Expected("RANK_FAILED", rank=0, node=0, says=["ImportError", "requires torch>=3.1, but torch 2.13.0 is installed",
                                                  "version"]),
    files={
        "their_extension.py": "raise ImportError('their_extension requires torch>=3.1, but torch 2.13.0 is installed')"
    },
)  # fmt: skip
