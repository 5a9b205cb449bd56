"""A handful of the catalogue (docs/faults.md) on one platform; `make faults` plays all of it."""

import re
from collections.abc import Iterator
from functools import partial

import pytest

from tests.faults.catalogue import registry, trial
from tests.faults.catalogue.__main__ import run_each
from tests.faults.catalogue.lab import FaultLab
from tests.faults.catalogue.trial import Result

pytestmark = [pytest.mark.faults]

QUICK = ("exception_in_loader", "first_failure_explains", "missing_module_on_one_node", "cuda_out_of_memory",
         "killed_from_outside", "segfault", "hang_in_loading", "early_exit", "crash_loop")  # fmt: skip
HEALTHY = "evaluation_by_one"


@pytest.fixture(scope="module")
def played() -> Iterator[dict[str, Result]]:
    """All at once: most of the time they wait."""
    with FaultLab() as fault_lab:
        todo = [partial(trial.try_fault, fault_lab, name, registry.load_fault(name)) for name in QUICK]
        [(name, run)] = registry.choose_healthy_runs(1, [HEALTHY])
        yield {one.name: one for one in run_each([partial(trial.try_healthy_run, fault_lab, name, run), *todo], 5)}


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_named_with_rank_node_cause_and_what_to_do(name, played):
    result = played[name]
    assert result.right, (result.lacks, result.note, result.said)


def test_a_long_evaluation_by_one_rank_raises_no_alarm(played):
    [result] = [one for name, one in played.items() if name.startswith(HEALTHY)]
    assert result.right, (result.lacks, result.note, result.said)


def test_every_fault_is_loadable_and_its_markers_exist():
    found = registry.load_faults()
    assert len(found) >= 44
    for name, part in found:
        wanted = re.findall(r"\{(\w+)\}", " ".join([*part.expected.says, *part.expected.shows]))
        assert all(f"# {mark}\n" in part.script for mark in wanted), name
        if name != "syntax_error":
            compile(part.script, name, "exec")
        assert "knowable()" in part.script or part.inject or part.environments, f"{name}: when can it be known?"
