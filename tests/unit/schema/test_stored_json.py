"""What any release has written can be read for ever: `tests/stored_json` has it, a folder for each form of a row."""

import json
from pathlib import Path
from typing import Any

import pytest

from fermi.jobs.spec import Entrypoint, JobSpec, Node, Plan, Rendered
from fermi.planning import plugins
from fermi.schema import serialization

STORED = Path(__file__).parents[2] / "stored_json"
JOBS = sorted(STORED.glob("*/job.json"))
RENDERED = sorted(STORED.glob("*/rendered-*.json"))


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8")))


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def plan_of(job: JobSpec) -> Plan:
    attempt = job.for_attempt(1, master_port=job.master_port, resume_from="")
    return plugins.get_framework(job.framework).plan(attempt)


def test_every_stored_version_has_examples() -> None:
    versions = {path.parent.name for path in JOBS}
    assert versions == {"before-versions", *(f"version-{number}" for number in range(1, serialization.VERSION + 1))}


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.parent.name)
def test_a_job_of_any_release_can_be_planned(path: Path) -> None:
    job = JobSpec.from_json(read(path))
    assert (job.task_id, job.framework, job.master, job.world_size) == ("task-0a1b2c3d", "pytorch-ddp", "env-1", 6)
    assert job.entrypoint == Entrypoint("/work/train.py", ("--epochs", "3"))
    assert [node.engine["pod"] for node in job.nodes] == ["gpu-1", "gpu-2"]
    assert job.grace_seconds == 45.0
    assert [len(node.processes) for node in plan_of(job).nodes] == [2, 4]


@pytest.mark.parametrize("path", RENDERED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_rendered_jobs_of_any_release_are_sent_unchanged(path: Path) -> None:
    data = read(path)
    found = Rendered.from_json(data).to_json()
    assert {**found, "version": None} == {**data, "version": None}


def test_stored_values_are_read_unchanged() -> None:
    job = JobSpec.from_json(read(JOBS[0]))
    assert JobSpec.from_json(through_json(job.to_json())) == job
    assert through_json(job.to_json())["version"] == serialization.VERSION


def changed(**changes: Any) -> dict[str, Any]:
    return {**read(JOBS[-1]), **changes}


@pytest.mark.parametrize(
    ("changes", "name", "expected"),
    [
        ({"version": 99, "sharding": {"by": "layer"}}, "framework", "pytorch-ddp"),
        ({"backend": "ucc"}, "backend", "auto"),
        ({"grace_seconds": "a while"}, "grace_seconds", 30.0),
        ({"framework": None}, "framework", ""),
        ({"nodes": "everywhere"}, "nodes", ()),
        ({"entrypoint": {"program": "train"}}, "entrypoint", Entrypoint("")),
        ({"spares": ["env-9"], "hyperparameters": 7}, "spares", ("env-9",)),
    ],
)
def test_unknown_values_of_another_release_are_read_as_far_as_possible(
    changes: dict[str, Any], name: str, expected: object
) -> None:
    assert getattr(JobSpec.from_json(changed(**changes)), name) == expected


def test_only_unknown_parts_of_a_node_are_dropped() -> None:
    nodes = changed()["nodes"]
    nodes[0] = {**nodes[0], "gpu_count": "two", "rack": "r7"}
    found = JobSpec.from_json(changed(nodes=nodes)).nodes
    assert (found[0].name, found[0].gpu_count) == ("gpu-1", 0)
    assert found[1] == JobSpec.from_json(changed()).nodes[1]


@pytest.mark.parametrize("name", list(changed()))
def test_a_job_with_any_key_missing_is_read(name: str) -> None:
    without = {key: value for key, value in changed().items() if key != name}
    found = JobSpec.from_json(without)
    assert isinstance(found.nodes, tuple)
    assert all(isinstance(node, Node) for node in found.nodes)
