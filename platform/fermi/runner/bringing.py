"""Stands in for `fermi.runner.code_delivery` until the release after 0.1.0: nodes and environments that were started
before an update still start it by this name."""

from fermi.runner.code_delivery import CodeDelivery as Bringing
from fermi.runner.code_delivery import build_interpreter_env as in_front
from fermi.runner.code_delivery import write_chosen_interpreter as leave_word

__all__ = ["Bringing", "in_front", "leave_word"]
