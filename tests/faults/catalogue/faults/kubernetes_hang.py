"""A hang in a pod: the answer is the one of every engine."""

from tests.faults.catalogue.fault import Fault
from tests.faults.catalogue.faults.slurm_hang import FAULT as ALIKE

FAULT = Fault(ALIKE.script, ALIKE.expected, environments=lambda run: run.fault_lab.on_kubernetes(run))
