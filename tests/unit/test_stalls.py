"""Whether a rank is still, by two looks at it, with what torch's flight recorder told of its collective."""

import pytest

from fermi.probe.reader import Seen
from fermi.runner import stall_evidence
from fermi.runner.activity import Activity
from fermi.runner.pulse import Sample
from fermi.runner.stacks import Frame

SELF, PAIR = [0], [0, 1]
PLACE = [Frame("collective_behind_a_kernel.py", 49, "main")]


def make_evidence(at: float, ranks: list[int] | None, state: str = "R") -> stall_evidence.Evidence:
    """Of a rank whose main thread spins until its GPU has done its work."""
    said = {"op": "all_reduce", "seq": 6, "group": "nccl 0", "sizes": [[1 << 20]]}
    page = Seen(**dict.fromkeys(Seen._fields, 0))._replace(  # type: ignore[arg-type]
        pid=7, phase="running", begun=6, ended=5, collective_at=1.0, alive_at=at,
        collective={**said, **({} if ranks is None else {"ranks": ranks})},
    )  # fmt: skip
    sample = Sample(at, page, 7, state=state, main_seconds=at if state == "R" else 0.0)
    return stall_evidence.Evidence(sample, Activity(pids=[7], seconds=sample.main_seconds), PLACE, [], "")


@pytest.mark.parametrize(("ranks", "still"), [(SELF, False), (PAIR, True), (None, True)])
def test_who_spins_in_a_collective_waits_for_peers_where_it_has_some(ranks: list[int] | None, still: bool) -> None:
    assert stall_evidence.is_still(make_evidence(10, ranks), make_evidence(15, ranks)) is still
    assert stall_evidence.waits_in(make_evidence(15, ranks).sample)["in"] == ("all_reduce" if still else "")


def test_in_a_group_of_its_own_alone_a_rank_that_sleeps_waits_for_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_evidence.gpus, "indices", lambda pid: {0})
    row = {"index": "0", "utilization.gpu": "100"}
    monkeypatch.setattr(stall_evidence.nvidia_smi, "ask", lambda *_, **__: [row])
    assert not stall_evidence.is_still(make_evidence(10, SELF, "S"), make_evidence(15, SELF, "S"))
    row["utilization.gpu"] = "0"
    assert stall_evidence.is_still(make_evidence(10, SELF, "S"), make_evidence(15, SELF, "S"))
