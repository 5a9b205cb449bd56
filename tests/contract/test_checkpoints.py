"""What the ranks of two nodes save together is found, and resumed from, on every engine: in a folder that all nodes
see, and in folders of the nodes' own."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from fermi.jobs.spec import Entrypoint, Handle, JobSpec, Phase, ResumeRule
from fermi.metrics.records import parse_numbers
from fermi.runner.record_frames import iterate_frames
from tests.polling import until

SAVER = Path(__file__).with_name("saver.py")


def saving(engine) -> JobSpec:
    """Two nodes of one rank each, and a rule that says how the script takes a checkpoint."""
    job = engine.job("", (1, 1))
    rule = ResumeRule(("--load", "{path}"))
    entry = Entrypoint(str(SAVER), (str(engine.scratch), "{checkpoint_dir}"), resume=rule)
    top = engine.backend.mount or str(engine.backend.data_dir)
    return replace(job, entrypoint=entry, checkpoint_dir=f"{top}/checkpoints/{job.task_id}")


def run(engine, job: JobSpec) -> Handle:
    handle = engine.submit(job)
    ended = engine.until(handle, Phase.SUCCEEDED, Phase.FAILED)
    assert ended.phase is Phase.SUCCEEDED, ended
    engine.until_gone(handle)
    return handle


def reports(engine, handle: Handle, rank: int) -> list[dict[str, Any]]:
    """What the runner of the rank's node says of checkpoints."""
    data = engine.backend.logs(handle, rank, 0).data
    found = [json.loads(record) for _, _, record in iterate_frames(data)]
    return [one["checkpoint"] for one in found if "checkpoint" in one]


def test_a_checkpoint_of_two_nodes_is_complete_with_the_parts_of_both_and_resumed_from(engine):
    job = saving(engine)
    handle = run(engine, job)
    until(lambda: reports(engine, handle, 0), what="the node of rank 0 says what it has")
    newest = [found[-1] for rank in (0, 1) if (found := reports(engine, handle, rank))]
    assert {Path(one["path"]).name for one in newest} == {"step-20"}
    assert (newest[0]["step"], newest[0]["layout"]) == (20, "dcp")
    if "parts" in newest[0]:  # each node has a disk of its own
        assert [one["layout"] for one in newest] == ["dcp", "part"]
        assert newest[0]["parts_needed"] == 2
        assert set.union(*(parse_numbers(one["parts"]) for one in newest)) == {0, 1}
    assert len({one["identity"] for one in newest}) == (2 if "parts" in newest[0] else 1)
    path = f"{job.checkpoint_dir}/step-20"
    again = replace(job, attempt=2, resume_from=path, resume_step=20)
    handle = run(engine, again)
    for rank in (0, 1):
        said = [line for line in engine.log(handle, rank).splitlines() if line.startswith("resumed")]
        assert said == ["resumed step-20 __0_0.distcp __1_0.distcp"]


def test_ranks_do_not_start_where_the_checkpoint_that_they_resume_from_is_not(engine):
    job = saving(engine)
    handle = engine.submit(replace(job, attempt=2, resume_from=f"{job.checkpoint_dir}/step-7", resume_step=7))
    ended = engine.until(handle, Phase.FAILED, Phase.SUCCEEDED)
    assert (ended.phase, ended.cause and ended.cause.code) == (Phase.FAILED, "RESUME_NOT_ON_NODE")
    assert ended.cause.params["node"]
    assert Path(ended.cause.params["path"]).name == "step-7"
    engine.until_gone(handle)
    assert not list(engine.scratch.glob("saved-*"))
