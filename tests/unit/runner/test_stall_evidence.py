"""Whether a rank is still, by two looks at it, with what torch's flight recorder told of its collective."""

import pytest

from fermi.probe.reader import PageValues
from fermi.runner import stall_evidence
from fermi.runner.activity import Activity
from fermi.runner.pulse import RankSample
from fermi.runner.stacks import StackFrame

SELF, PAIR = [0], [0, 1]
PLACE = [StackFrame("collective_behind_a_kernel.py", 49, "main")]


def make_evidence(at: float, ranks: list[int] | None, state: str = "R") -> stall_evidence.StallEvidence:
    """Of a rank whose main thread spins until its GPU has done its work."""
    said = {"op": "all_reduce", "seq": 6, "group": "nccl 0", "sizes": [[1 << 20]]}
    page = PageValues(**dict.fromkeys(PageValues._fields, 0))._replace(  # type: ignore[arg-type]
        pid=7, phase="running", begun=6, ended=5, collective_at=1.0, alive_at=at,
        collective={**said, **({} if ranks is None else {"ranks": ranks})},
    )  # fmt: skip
    sample = RankSample(at, page, 7, state=state, main_seconds=at if state == "R" else 0.0)
    return stall_evidence.StallEvidence(sample, Activity(pids=[7], seconds=sample.main_seconds), PLACE, [], "")


@pytest.mark.parametrize(("ranks", "still"), [(SELF, False), (PAIR, True), (None, True)])
def test_a_rank_that_spins_in_a_collective_waits_for_peers(ranks: list[int] | None, still: bool) -> None:
    assert stall_evidence.is_idle(make_evidence(10, ranks), make_evidence(15, ranks)) is still
    assert stall_evidence.describe_collective(make_evidence(15, ranks).sample)["in"] == ("all_reduce" if still else "")


def test_alone_in_its_group_a_sleeping_rank_waits_for_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_evidence.gpus, "list_open_gpus", lambda pid: {0})
    row = {"index": "0", "utilization.gpu": "100"}
    monkeypatch.setattr(stall_evidence.nvidia_smi, "run_query", lambda *_, **__: [row])
    assert not stall_evidence.is_idle(make_evidence(10, SELF, "S"), make_evidence(15, SELF, "S"))
    row["utilization.gpu"] = "0"
    assert stall_evidence.is_idle(make_evidence(10, SELF, "S"), make_evidence(15, SELF, "S"))
