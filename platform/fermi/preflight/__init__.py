"""The pre-flight test: whether these nodes can train together, and if not, which of them is at fault.

plan.py      one process per node, `fermi.train.preflight`, which prints facts (planned like any job)
verdict.py   facts of all nodes ─▶ report: a level per node and pair, the culprits (pure)
report.py    the report in the reader's language
"""

from fermi.jobs.spec import PREFLIGHT
from fermi.preflight.plan import plan

LEVELS = ("quick", "full")

__all__ = ["LEVELS", "PREFLIGHT", "plan"]
