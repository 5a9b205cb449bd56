"""The pre-flight test: can these nodes train together, and if not, who is to blame?

plan.py   one process per node, `fermi.train.preflight`, which prints facts          (planned like any job)
judge.py  facts of all nodes ─▶ report: a level per node and pair, the culprits      (pure)
words.py  the report in the reader's language
"""

from fermi.jobs.spec import PREFLIGHT
from fermi.preflight.plan import plan

LEVELS = ("quick", "full")

__all__ = ["LEVELS", "PREFLIGHT", "plan"]
