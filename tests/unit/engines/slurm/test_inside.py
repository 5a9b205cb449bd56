"""Nodes inside of allocations: where they are, what is sent and seen of them, and what is discovered. Pure."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fermi import messages
from fermi.engines.slurm import allocations, components, discover, driver, inside, run_location, state
from fermi.engines.slurm.commands import SlurmCommands
from fermi.engines.slurm.driver import SlurmJob, SlurmMachine
from fermi.engines.slurm.render import build_files
from fermi.engines.slurm.rundir import RunDir, RunDirContents, StepLocation
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import JobSpec, Node, Rendered, RunLocation
from fermi.planning import plugins
from tests.goldens import job

NOW = 1_000_000.0
STOP = {"grace_seconds": 0.0, "kill_at": NOW - 100}
ORDER = {"nodes": 2, "names": ["a", "b"], "inside": {"0": {"processes": 1}, "1": {"processes": 1}}}
PLACES = {0: StepLocation(7, "n1"), 1: StepLocation(8, "n2")}


def node(rank: int, what: str = "running", code: int | None = None, **more: Any) -> dict[str, Any]:
    entry = {"rank": rank, "local_rank": 0, "pid": 100 + rank, "state": what, "exit_code": code, "ended_at": 5.0}
    return {"state": "exited" if what == "exited" else "running", "ranks": [entry], "asked": "", "cause": None, **more}


def seen(*statuses: dict[str, Any], begun: int = 2, **more: Any) -> RunDirContents:
    return RunDirContents(
        ORDER, 0, 0, dict(enumerate(statuses)), more.get("stop"), None, "", PLACES, frozenset(range(begun))
    )


def one(number: int, state: str = "RUNNING", *flags: str) -> SlurmJob:
    return SlurmJob(number, number, "fermi", state, frozenset(flags), nodes=f"n{number - 6}")


RUNNING, DONE = (node(0), node(1)), (node(0, "exited", 0), node(1, "exited", 0))
FAILED = (node(0, "exited", 1), node(1, "exited", -15))
LEFT = (node(0), node(1, "exited", 143, asked="SIGTERM"))
WARNED = (node(0, "exited", 0), node(1, "exited", 0, asked="SIGURG"))
NO_HEAD = (node(0), {"state": "exited", "ranks": [], "asked": "",
                     "cause": {"code": "MASTER_UNREACHABLE", "evidence": "n1:29500"}})  # fmt: skip
NO_SECRET = (node(0), {"state": "exited", "ranks": [], "asked": "",
                       "cause": {"code": "START_FAILED", "evidence": "no value"}})  # fmt: skip
BOTH = (one(7), one(8))
TABLE: list[tuple[str, RunDirContents, tuple[SlurmJob, ...], tuple[int, ...], tuple[str, bool | None, str]]] = [
    ("nothing has begun", seen(begun=0), BOTH, (), ("absent", None, "")),
    ("cancelled before it began", seen(begun=0, stop=STOP), BOTH, (), ("absent", False, "")),
    ("one of two has begun", seen(node(0), begun=1), BOTH, (0,), ("starting", True, "")),
    ("its step is listed before it has begun", seen(begun=0), BOTH, (0,), ("starting", True, "")),
    ("it runs", seen(*RUNNING), BOTH, (0, 1), ("running", True, "")),
    ("the allocation is suspended", seen(*RUNNING), (one(7, "SUSPENDED"), one(8)), (0, 1), ("running", True, "")),
    ("all ended well, a step is about to", seen(*DONE), BOTH, (1,), ("succeeded", True, "")),
    ("it succeeded", seen(*DONE), BOTH, (), ("succeeded", False, "")),
    ("it succeeded, and its allocations ended since", seen(*DONE), (), (), ("succeeded", False, "")),
    ("a rank failed", seen(*FAILED), BOTH, (), ("failed", False, "RANK_FAILED")),
    ("a step was killed", seen(*RUNNING), BOTH, (0,), ("failed", True, "RUNNER_LOST")),
    ("an allocation is being ended", seen(*RUNNING), (one(7), one(8, "CANCELLED", "COMPLETING")), (0, 1),
     ("failed", True, "ALLOCATION_ENDED")),
    ("an allocation is being ended, and it is not told why", seen(*LEFT), (one(7), one(8, "", "COMPLETING")), (0,),
     ("unknown", True, "")),
    ("an allocation was cancelled", seen(*LEFT), (one(7), one(8, "CANCELLED")), (0,),
     ("failed", True, "ALLOCATION_ENDED")),
    ("its shell was left", seen(*RUNNING), (one(7), one(8, "COMPLETED")), (0,), ("failed", True, "ALLOCATION_ENDED")),
    ("it was requeued", seen(*RUNNING), (one(7), one(8, "PENDING")), (0,), ("failed", True, "ALLOCATION_ENDED")),
    ("preempted", seen(*LEFT), (one(7), one(8, "PREEMPTED")), (0,), ("failed", True, "PREEMPTED")),
    ("its node is lost", seen(*RUNNING), (one(7), one(8, "NODE_FAIL")), (0,), ("failed", True, "NODE_LOST")),
    ("out of memory", seen(*RUNNING), (one(7), one(8, "OUT_OF_MEMORY")), (0,), ("failed", True, "OUT_OF_MEMORY")),
    ("warned of the limit", seen(*WARNED), BOTH, (), ("failed", False, "ALLOCATION_ENDED")),
    ("its step was cancelled", seen(*LEFT), BOTH, (0,), ("failed", True, "STEP_CANCELLED")),
    ("the controller lost an allocation", seen(*RUNNING), (one(7),), (0,), ("failed", True, "JOB_LOST")),
    ("the controller lost both", seen(*RUNNING), (), (), ("failed", True, "JOB_LOST")),
    ("and it was stopped since", seen(*RUNNING, stop=STOP), (), (), ("failed", False, "RUNNER_LOST")),
    ("the head is not reached", seen(*NO_HEAD), BOTH, (0,), ("failed", True, "MASTER_UNREACHABLE")),
    ("a secret has not come", seen(*NO_SECRET), BOTH, (0,), ("failed", True, "JOB_FAILED")),
    ("stopped", seen(*LEFT, stop=STOP), BOTH, (), ("failed", False, "RUNNER_LOST")),
]  # fmt: skip


@pytest.mark.parametrize(("found", "jobs", "steps", "told"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_an_observation_follows_from_files_and_step_state(
    found: RunDirContents, jobs: tuple[SlurmJob, ...], steps: tuple[int, ...], told: tuple[str, bool | None, str]
) -> None:
    missing = {rank: NOW - 60 for rank in found.started_inside if rank not in steps}
    one = state.build_inside_observation(found, {job.id: job for job in jobs}, steps, missing, NOW)
    cause = one.cause or one.waiting
    assert (one.phase.value, one.left, cause.code if cause else "") == told
    if cause:
        for language in messages.LANGUAGES:
            assert "{" not in "".join(messages.render_text(cause.code, language, **cause.params))


def test_a_shared_folder_may_lag_behind_slurm() -> None:
    """The step is gone, and how its runner ended is not to be seen yet."""
    jobs = {job.id: job for job in BOTH}
    found = state.build_inside_observation(seen(*RUNNING), jobs, (0,), {1: NOW - 1}, NOW)
    assert (found.phase.value, found.left) == ("unknown", True)


def test_steps_are_identified_by_their_names() -> None:
    steps = {"fermi:task-x-1/0": ["7.1"], "fermi:task-x-1/12": ["8.0", "8.3"], "bash": ["7.0"],
             "fermi:task-y-1": ["9.0"], "fermi:task-z-1/a": ["9.1"], "fermi": ["3.0"]}  # fmt: skip
    assert components.group_steps(steps) == {"task-x-1": {0: ["7.1"], 12: ["8.0", "8.3"]}}
    assert components.build_step_name("task-x-1", 12) in steps


def test_a_program_that_cannot_start_is_named_although_its_step_ends_a_moment_after_its_stream(tmp_path: Path) -> None:
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\nexec 0<&- 1>&-\nsleep 0.2\necho sh: 1: /no/such/python: not found >&2\nexit 127\n")
    srun.chmod(0o755)
    order = {"environment": "notes", "shell": ["/bin/sh"]}
    with pytest.raises(BackendError) as refused:
        inside.start_node(
            SlurmCommands({"bin": str(tmp_path)}), RunDir(tmp_path / "run"), "task-x-1", 0, StepLocation(7, "n1"), order
        )
    assert (refused.value.code, refused.value.permanent) == ("INSIDE_RUNNER_FAILED", True)
    assert "/no/such/python" in refused.value.params["why"]


# What is sent -----------------------------------------------------------------------------------------------------


def placed(spec: JobSpec, *inner: dict[str, Any]) -> JobSpec:
    """The first nodes inside of allocations, as `engine` says."""
    nodes = [replace(node, engine=engine, host="n1", way=RunLocation(True, "WAY_INSIDE_RUNS"))
             for node, engine in zip(spec.nodes, inner, strict=False)]  # fmt: skip
    return replace(spec, nodes=(*nodes, *spec.nodes[len(nodes) :]))


def render(spec: JobSpec, **connection: Any) -> Rendered:
    plan = plugins.get_framework(spec.framework).plan(spec)
    return plugins.get_backend("slurm", {"folder": "/shared/fermi", **connection}).render(spec, plan)


def test_without_nodes_outside_no_job_is_submitted() -> None:
    """Ranks are confined to their environment; a container of the cluster is for jobs of its own."""
    container = {"runtime": "apptainer", "image": "/images/torch.sif"}
    spec = placed(job("env-001", "env-003"), {"allocation": 7}, {"job": 9, "node": "n2"})
    found: dict[str, Any] = dict(build_files(render(spec, modules=["cuda"], container=container, python="/opt/py")))
    assert "job.sh" not in found
    own, offered = found["order.json"]["inside"].values()
    assert (own["made"], own["processes"], offered["job"], offered["host"]) == ("env-001", 2, 9, "n2")
    assert own["shell"][:3] == ["bash", "-l", "-c"]
    assert own["shell"][3].splitlines()[-1] == 'exec /opt/py -m fermi.runner.slurm "$run" 0'
    disk = "/shared/fermi/slurm-environments/env-001"
    confine = found["node-0.json"]["confine"]
    assert (found["node-0.json"]["cwd"], confine["home"]) == (f"{disk}/workspace", f"{disk}/home")
    assert confine["paths"]["/shared/fermi"] == ""
    assert confine["paths"][f"{disk}/home"] == "rwm"
    assert confine["view"]
    other = found["node-1.json"]
    assert (other["cwd"], other["confine"]["home"]) == ("/shared/fermi/workspace", "/shared/fermi/homes/default")
    assert other["yields"]
    json.dumps(found["order.json"])


def test_the_nodes_outside_of_a_mixed_task_are_one_job() -> None:
    spec = placed(job("env-001", "env-003", "env-005"), {"allocation": 7})
    found: dict[str, Any] = dict(build_files(render(spec)))
    assert found["order.json"]["ranks"] == [1, 2]
    assert list(found["order.json"]["inside"]) == ["0"]
    assert 'FERMI_HEAD="$(cat head)"; export FERMI_HEAD' in found["job.sh"]
    assert "env-001" not in found["job.sh"]
    assert len(found["order.json"]["beside"]) == 3
    outside = replace(spec, master="env-003")
    assert "> head.tmp && mv head.tmp head" in str(build_files(render(outside))["job.sh"])


def test_a_job_next_to_an_allocation_requests_its_machine() -> None:
    spec = job("env-001")
    node = replace(spec.nodes[0], engine={"allocation": 7}, host="n1", way=RunLocation(False, "WAY_BESIDE_ASKED"))
    assert "#SBATCH --nodelist=n1\n" in str(build_files(render(replace(spec, nodes=(node,))))["job.sh"])


# Which way ----------------------------------------------------------------------------------------------------------


MACHINES = {"n1": SlurmMachine("n1", frozenset({"MIXED"}), gres="gpu:a100:8(S:0-1)")}


@pytest.mark.parametrize(
    ("engine", "gpus", "enters", "expected"),
    [
        ({"allocation": 7}, 8, True, ("WAY_INSIDE_GPUS", None, "BESIDE_GPUS_HELD")),
        ({"allocation": 7}, 4, True, ("WAY_INSIDE_GPUS", None, None)),
        ({"allocation": 7}, 0, True, ("WAY_INSIDE_RUNS", None, None)),
        ({"allocation": 7}, 4, False, ("WAY_INSIDE_GPUS", "SLURM_COMMAND_MISSING", None)),
        ({"job": 9, "user": "alice"}, 8, True, ("WAY_INSIDE_GPUS", "SLURM_ALLOCATION_USER", "BESIDE_GPUS_HELD")),
    ],
)
def test_possible_run_locations_are_listed(
    engine: dict[str, Any], gpus: int, enters: bool, expected: tuple[str, str | None, str | None]
) -> None:
    node = Node("env-1", "notes", host="n1", gpu_count=gpus, engine=engine)
    spec = JobSpec("task-x", "ddp", (node, Node("env-2", "a place", engine={"node": "n1"})), "env-1")
    found = run_location.find_run_locations(spec, {}, lambda: enters, lambda: MACHINES)
    assert list(found) == ["env-1"]
    one = found["env-1"]
    assert (one.prefers.code, one.inside and one.inside.code, one.beside and one.beside.code) == expected
    for way in (one.prefers, one.inside, one.beside):
        for language in messages.LANGUAGES if way else ():
            assert "{" not in "".join(messages.render_text(way.code, language, environment="notes", **way.params))


# Where it is ----------------------------------------------------------------------------------------------------------


class Controller:
    """What `Allocations` asks."""

    def __init__(self, *jobs: SlurmJob) -> None:
        self.jobs = jobs

    def job(self, number: int) -> list[SlurmJob]:
        return [job for job in self.jobs if job.id == number]


def made(data: Path, number: int, told: str = "running", job: int = 7) -> Path:
    run = data / "slurm-environments" / "env-1" / "runs" / str(number)
    run.mkdir(parents=True)
    (run / "begun").symlink_to(str(job))
    (run / "keeper.status.json").write_text(json.dumps({"state": told}))
    return run


def find(data: Path, *jobs: SlurmJob, python: str = "", **engine: Any) -> StepLocation:
    node = Node("env-1", "notes", engine=engine or {"allocation": 3})
    controller: Any = Controller(*jobs)
    return inside.Allocations(data, "/there", controller).locate_node(allocations.build_order(node, python, ()))


def test_the_newest_run_of_an_environment_is_used(tmp_path: Path) -> None:
    made(tmp_path, 9, job=6)
    run = made(tmp_path, 10)
    job = SlurmJob(7, 7, "fermi-environment:env-1-10", "RUNNING", nodes="n2")
    assert find(tmp_path, job) == StepLocation(7, "n2")
    own = tmp_path / "slurm-environments" / "env-1" / "home" / ".fermi" / "python"
    own.mkdir(parents=True)
    (own / "made.json").touch()
    assert find(tmp_path, job).python == "/there/slurm-environments/env-1/home/.fermi/python/bin/python"
    assert find(tmp_path, job, python="/opt/py").python == "/opt/py"
    gone = (replace(job, comment="fermi:task-x-1"), replace(job, state="COMPLETED"), replace(job, nodes="n[1-2]"))
    for other in gone:
        with pytest.raises(BackendError, match="INSIDE_NOT_RUNNING"):
            find(tmp_path, other)
    (run / "stop.json").write_text("{}")
    with pytest.raises(BackendError, match="INSIDE_NOT_RUNNING"):
        find(tmp_path, job)


def test_foreign_allocations_are_not_entered(tmp_path: Path) -> None:
    job = SlurmJob(9, 9, "fermi", "RUNNING", nodes="n[1-2]", user="root-of-all")
    with pytest.raises(BackendError) as refused:
        find(tmp_path, job, job=9, node="n2")
    assert (refused.value.code, refused.value.permanent) == ("SLURM_ALLOCATION_USER", True)
    assert find(tmp_path, replace(job, user=""), job=9, node="n2") == StepLocation(9, "n2")
    with pytest.raises(BackendError, match="INSIDE_NOT_RUNNING"):
        find(tmp_path, replace(job, user="", comment="taken back"), job=9, node="n2")


def test_malformed_start_records_are_ignored(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.write_places(PLACES, "10.0.0.1")
    assert (run.places(), (tmp_path / "head").read_text()) == (PLACES, "10.0.0.1")
    torn = {"0": {"job": "x"}, "b": {}, "1": [], "2": {"job": 1, "host": "n", "python": ""}}
    (tmp_path / "places.json").write_text(json.dumps(torn))
    assert run.places() == {2: StepLocation(1, "n")}


# What is offered ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,12],gpu1", ["n08", "n09", "n10", "n12", "gpu1"]),
        ("rack[1-2]-ib", ["rack1-ib", "rack2-ib"]),
        ("n[1-999999]", []),
    ],
)
def test_node_lists_are_parsed_as_slurm_writes_them(nodes: str, names: list[str]) -> None:
    assert discover.expand_node_list(nodes) == names


ROW = {
    "job_id": 12, "comment": "fermi project=nlp name=notes", "job_state": "RUNNING", "nodes": "n[1-2]", "cpus": 32,
    "user_name": "alice", "name": "interactive", "partition": "gpu", "start_time": 1_000_000,
    "gres_detail": ["gpu:a100:2(IDX:0-1)", "gpu:a100:1(IDX:3)"],
    "tres_alloc_str": "cpu=32,mem=62.50G,node=2,gres/gpu=3",
}  # fmt: skip


def test_each_node_of_an_offered_allocation_is_an_environment() -> None:
    first, second = discover.find_environments([driver.parse_job(ROW)])
    assert (first.key, first.name, first.project, first.owner) == ("12/n1", "notes-n1", "nlp", "alice")
    assert (first.gpu_type, first.gpu_count, second.gpu_count) == ("A100", 2, 1)
    assert (first.cpu_cores, first.memory_gb, first.host, first.running) == (16, 31, "n1", True)
    assert second.engine == {"job": 12, "node": "n2", "user": "alice"}


@pytest.mark.parametrize(
    "change",
    [
        {"comment": ""},
        {"comment": "fermi:task-x-1"},
        {"comment": "fermi-environment:env-1-2"},
        {"comment": "not fermi"},
        {"job_state": "PENDING"},
        {"job_state": "COMPLETED"},
        {"job_state": ["RUNNING", "COMPLETING"]},
        {"nodes": ""},
    ],
)
def test_other_jobs_are_no_environments(change: dict[str, Any]) -> None:
    assert discover.find_environments([driver.parse_job({**ROW, **change})]) == []


def test_a_suspended_allocation_is_not_used() -> None:
    assert [
        one.running for one in discover.find_environments([driver.parse_job({**ROW, "job_state": "SUSPENDED"})])
    ] == [False, False]
