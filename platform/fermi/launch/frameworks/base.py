"""What a framework must be able to do. A framework is one module (or package) with these names at its top level."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fermi.launch.spec import JobSpec, Plan, Problem, Proposal


class Framework(Protocol):
    """`INFO`: for people and pages: `{"value", "aliases", "label": {zh, en}, "description": …, "parallelism": …,
    "modelSize": …}`. `OPTIONS`: JSON Schema of `distributedConfig.options`. `PRELOAD`: modules worth importing once
    before ranks are forked. `NEEDS_CUDA`, where it is there and true: no CPU process can stand in for a GPU."""

    INFO: Mapping[str, Any]
    OPTIONS: Mapping[str, Any]
    PRELOAD: Sequence[str]

    def problems(self, spec: JobSpec) -> list[Problem]:
        """All broken rules at once; empty = `plan` will succeed. Never raises."""

    def warnings(self, spec: JobSpec) -> list[Problem]:
        """What is worth knowing and does not stop the job."""

    def propose(self, spec: JobSpec) -> Proposal:
        """What is left empty, chosen for these nodes; what the user gave is kept and not repeated. `problems` and
        `plan` judge and render a job as if the proposal had been given."""

    def plan(self, spec: JobSpec) -> Plan:
        """Pure."""
