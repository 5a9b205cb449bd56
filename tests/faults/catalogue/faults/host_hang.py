"""A hang on hosts with agents: the answer is the one of every engine."""

from tests import netlab
from tests.faults.catalogue.fault import Fault
from tests.faults.catalogue.faults.slurm_hang import FAULT as ALIKE

FAULT = Fault(
    ALIKE.script,
    ALIKE.expected,
    environments=lambda run: run.fault_lab.hosts(run)[1],
    needs=netlab.missing,
)
