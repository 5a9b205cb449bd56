"""Training inside of allocations that environments have already, on a real Slurm with two nodes on this machine."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fermi.engines.environments import EnvironmentPhase, EnvironmentSpec
from fermi.engines.slurm import discover, environments
from fermi.jobs import run_location
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Entrypoint, Handle, JobSpec, Node, Observation, Phase, RankStatus, RunLocation
from fermi.planning import plugins
from tests.contract.conftest import InAllocations, OnSlurm
from tests.envd_client import Kept
from tests.platform_process import Running
from tests.polling import until
from tests.process_state import alive
from tests.slurm import Slurm, started
from tests.trainer import TINY
from tests.wheels import make_wheel

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PATIENCE = 240.0
TELLS = """import json, os, time
names = ("HOME", "SLURM_JOB_ID", "SLURM_STEP_GPUS", "WORLD_SIZE")
print(json.dumps({**{name: os.environ.get(name, "") for name in names}, "cwd": os.getcwd(),
                  "cpus": len(os.sched_getaffinity(0))}), flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with started() as lab:
        yield lab


@pytest.fixture
def engine(slurm: Slurm, tmp_path: Path) -> Iterator[InAllocations]:
    engine = InAllocations(slurm, tmp_path)
    yield engine
    slurm.restore()
    engine.close()


def ready(engine: OnSlurm, handle: Handle, word: str = "ready") -> tuple[RankStatus, ...]:
    """Its ranks, once all of them run."""
    until(lambda: all(word in engine.log(handle, rank) for rank in range(handle.world_size)), what="ranks ready")
    return engine.until(handle, Phase.RUNNING).ranks


def step_of(slurm: Slurm, handle: Handle, node_rank: int = 0) -> str:
    lines = slurm.command("squeue", "--steps", "--noheader", "--format=%i|%j").splitlines()
    return next((line.split("|")[0] for line in lines if line.endswith(f"|fermi:{handle.name}/{node_rank}")), "")


def ended(engine: OnSlurm, handle: Handle) -> Observation:
    def seen() -> Observation | None:
        found = engine.observe(handle)
        return found if found.phase is Phase.FAILED and found.left is False else None

    return until(seen, seconds=PATIENCE, what=f"{handle.name} has ended")


# Environments that the platform made ------------------------------------------------------------------------------


def make_kept_environment(engine: OnSlurm, slurm: Slurm, name: str, run: int = 1) -> Kept:
    """An environment that holds all of a machine."""
    values = {**slurm.connection, **slurm.commands, "python": sys.executable, "reads": [str(Path(sys.prefix).parent)]}
    hosting = environments.SlurmEnvironmentBackend({"data_dir": str(engine.scratch / "data"), **values})
    spec = EnvironmentSpec(name, name, "project-1", run, "custom", gpu_count=2, cpu_cores=16, start_script="sleep 3600",
                      memory_gb=8)  # fmt: skip
    kept = Kept(hosting, spec).start()
    kept.until(EnvironmentPhase.RUNNING)
    return kept


def node_of(kept: Kept, gpus: int = 2) -> Node:
    """As the platform has it."""
    facts = kept.read_status().facts
    return Node(id=kept.spec.id, name=kept.spec.name, host=facts["host"], gpu_type="A100", gpu_count=gpus,
                emulated=True, cpu_cores=16, engine=facts["engine"])  # fmt: skip


def job_in(engine: OnSlurm, *nodes: Node, **changes: Any) -> JobSpec:
    job = replace(engine.job("", (1,)), nodes=nodes, master=nodes[0].id, entrypoint=Entrypoint("tells.py"), **changes)
    job, problems = run_location.choose_run_locations(job, engine.backend.find_run_locations(job))
    assert (problems, engine.backend.problems(job)) == ([], [])
    return job


def write(engine: OnSlurm, kept: Kept, name: str, text: str) -> None:
    folder = engine.scratch / "data" / "slurm-environments" / kept.spec.id / "workspace"
    (folder / name).write_text(text)


@pytest.fixture
def outside(slurm: Slurm, tmp_path: Path) -> Iterator[OnSlurm]:
    engine = OnSlurm(slurm, tmp_path)
    yield engine
    slurm.restore()
    engine.close()


def test_a_full_machine_trains_inside_with_the_environments_resources(outside: OnSlurm, slurm: Slurm) -> None:
    """With its files, home, processors and GPUs; the job is not another one, and goes on when the task is stopped. The
    next run of the environment has another number, and the next attempt finds it."""
    kept = make_kept_environment(outside, slurm, "env-a")
    write(outside, kept, "tells.py", TELLS)
    job = job_in(outside, node_of(kept), run_in="environment")
    allocation = kept.read_status().facts["engine"]["allocation"]
    handle = outside.submit(job)
    ready(outside, handle, "{")
    told = json.loads(outside.log(handle, 1))
    disk = outside.scratch / "data" / "slurm-environments" / "env-a"
    assert told == {
        "HOME": str(disk / "home"), "SLURM_JOB_ID": str(allocation), "SLURM_STEP_GPUS": "0,1", "WORLD_SIZE": "2",
        "cwd": str(disk / "workspace"), "cpus": os.cpu_count(),
    }  # fmt: skip
    assert slurm.command("squeue", "--noheader", "--format=%i").split() == [str(allocation)]
    outside.backend.cancel(handle, 5.0)
    outside.until_gone(handle)
    assert kept.read_status().phase is EnvironmentPhase.RUNNING

    second = outside.submit(replace(job, attempt=2))
    ranks = ready(outside, second, "{")
    kept.stop()
    cause = ended(outside, second).cause
    assert cause is not None
    assert (cause.code, cause.params["environment"], cause.params["why"]) == ("ALLOCATION_ENDED", "env-a", "CANCELLED")
    assert not any(alive(rank.pid) for rank in ranks)
    third = outside.handle(replace(job, attempt=3))
    with pytest.raises(BackendError, match="INSIDE_NOT_RUNNING"):
        outside.submit(replace(job, attempt=3))
    again = make_kept_environment(outside, slurm, "env-a", run=2)
    outside.submit(replace(job, attempt=3))
    ready(outside, third, "{")
    assert json.loads(outside.log(third, 0))["SLURM_JOB_ID"] == str(again.read_status().facts["engine"]["allocation"])


def test_run_locations_have_reasons(outside: OnSlurm, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    node = replace(node_of(make_kept_environment(outside, slurm, "env-b")), emulated=False)
    job = replace(outside.job("ok", (2,)), nodes=(node,), master=node.id)
    chosen, problems = run_location.choose_run_locations(job, outside.backend.find_run_locations(job))
    assert (chosen.nodes[0].way, problems) == (
        RunLocation(True, "BESIDE_GPUS_HELD", {"environment": "env-b", "gpus": 2, "there": 2, "free": 0, "host":
    node.host}), [] )  # fmt: skip
    beside = replace(job, run_in="beside")
    assert [
        one.code for one in run_location.choose_run_locations(beside, outside.backend.find_run_locations(beside))[1]
    ] == ["BESIDE_GPUS_HELD"]
    half = replace(job, nodes=(replace(node, gpu_count=1),))
    assert (
        run_location.choose_run_locations(half, outside.backend.find_run_locations(half))[0].nodes[0].way.code
        == "WAY_INSIDE_GPUS"
    )
    monkeypatch.setattr("getpass.getuser", lambda: "somebody")
    refused = run_location.choose_run_locations(job, outside.backend.find_run_locations(job))[1]
    assert [one.code for one in refused] == ["SLURM_ALLOCATION_USER", "BESIDE_GPUS_HELD"]


def test_a_kernel_sets_only_the_ranks_interpreter(outside: OnSlurm, slurm: Slurm) -> None:
    """Members can write to it: the node runner never runs it."""
    kept = make_kept_environment(outside, slurm, "env-c")
    home = outside.scratch / "data" / "slurm-environments" / "env-c" / "home"
    python = home / "own" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nWHO="$PPID" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    spec = home / ".local" / "share" / "jupyter" / "kernels" / "mine" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": [str(python), "-m", "ipykernel_launcher"]}))
    write(outside, kept, "tells.py", "import os, time; print('ready', os.environ['WHO'], flush=True); time.sleep(600)")
    with pytest.raises(BackendError, match="INSIDE_PYTHON_UNUSABLE"):
        outside.submit(job_in(outside, node_of(kept), python="no-such-kernel"))
    handle = outside.submit(job_in(outside, node_of(kept), python="mine"))
    ranks = ready(outside, handle)
    folder = outside.scratch / "data" / "runs" / handle.name
    runner = json.loads((folder / "node-0.status.json").read_text())["runner"]
    assert outside.log(handle, 0).split() == ["ready", str(runner["pid"])]
    assert os.readlink(f"/proc/{runner['pid']}/exe") == os.path.realpath(sys.executable)
    assert {rank.pid for rank in ranks}.isdisjoint({runner["pid"]})


def test_packages_installed_in_an_environment_are_imported_inside(outside: OnSlurm, slurm: Slurm) -> None:
    """By `pip install` in its terminal; the cluster's interpreter has not got it."""
    kept = make_kept_environment(outside, slurm, "env-e")
    wheel = make_wheel(outside.scratch / "data" / "slurm-environments" / "env-e" / "workspace")
    done = kept.run("python", "-m", "pip", "install", "--no-index", str(wheel))
    assert done.code == 0, (done, kept.log())
    write(outside, kept, "tells.py", "import tiny; print('ready', tiny.__file__, flush=True)")
    handle = outside.submit(job_in(outside, node_of(kept)))
    assert outside.until(handle, Phase.SUCCEEDED, Phase.FAILED).phase is Phase.SUCCEEDED, outside.log(handle, 0)
    assert "/env-e/home/.fermi/python/" in outside.log(handle, 0)
    other = outside.submit(replace(job_in(outside, node_of(kept), python=sys.executable), attempt=2))
    seen = outside.until(other, Phase.SUCCEEDED, Phase.FAILED)
    assert seen.phase is Phase.FAILED
    assert "No module named 'tiny'" in "".join(outside.log(other, rank) for rank in (0, 1))


def test_environments_are_entered_through_envd_or_a_step(outside: OnSlurm, engine: InAllocations, slurm: Slurm) -> None:
    offered = engine.job("ok", (1,)).nodes[0]
    for node in (offered, node_of(make_kept_environment(outside, slurm, "env-d"))):
        with outside.backend.enter(node) as session:
            assert session.request("survey")["user"] == os.getuid()
    with pytest.raises(BackendError, match="INSIDE_NOT_HERE"):
        outside.backend.enter(Node(id="env-1", name="a place in the queue"))


# Held by nobody ---------------------------------------------------------------------------------------------------


SUBMITS = """import json, sys
from fermi.jobs.spec import Rendered
from fermi.planning import plugins
backend = plugins.get_backend("slurm", json.loads(sys.argv[1]))
backend.submit(Rendered.from_json(json.loads(sys.stdin.read())))
print("submitted", flush=True)
sys.stdin.close()
__import__("time").sleep(600)
"""


def test_no_step_is_held_open_by_the_platform(engine: InAllocations, slurm: Slurm) -> None:
    """Whoever has submitted may die with all that it has started; another process observes and ends it."""
    job = engine.job("polite", (1, 2))
    handle = engine.handle(job)
    rendered = json.dumps(engine.backend.render(job, engine.plan(job)).to_json())
    connection = json.dumps({**engine.backend.connection, "data_dir": str(engine.scratch / "data")})
    platform = subprocess.Popen(
        [sys.executable, "-c", SUBMITS, connection], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert platform.stdin
    assert platform.stdout
    platform.stdin.write(rendered)
    platform.stdin.close()
    assert platform.stdout.readline() == "submitted\n"
    ranks = ready(engine, handle)
    mark = f"fermi:{handle.name}/".encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        assert not (words[0].endswith(b"srun") and any(mark in word for word in words)), "no srun is left"
    platform.kill()
    platform.wait()
    slurm.save(engine.allocations["n1"])
    slurm.restart_controller()
    seen = engine.observe(handle)
    assert (seen.phase, [rank.pid for rank in seen.ranks]) == (Phase.RUNNING, [rank.pid for rank in ranks])
    engine.backend.cancel(handle, 30.0)
    assert [rank.exit_code for rank in engine.until_gone(handle).ranks] == [143] * 3
    assert not step_of(slurm, handle)


def test_an_interrupted_submission_starts_the_missing_steps(engine: InAllocations) -> None:
    job = engine.job("wait", (1, 1))
    handle, rendered = engine.handle(job), engine.backend.render(job, engine.plan(job))
    threads = [threading.Thread(target=engine.backend.submit, args=(rendered,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ready(engine, handle)
    (engine.scratch / "data" / "runs" / handle.name / "node-1.begun").unlink()  # as if it had not been seen
    engine.backend.submit(rendered)
    assert engine.observe(handle).phase is Phase.RUNNING
    assert len((engine.scratch / "starts").read_text().splitlines()) == 2


def test_orphaned_steps_are_found_and_removed(engine: InAllocations, slurm: Slurm) -> None:
    handle = engine.submit(engine.job("wait", (1,)))
    ranks = ready(engine, handle)
    assert engine.backend.orphans([handle.name]) == []
    assert [one.name for one in engine.backend.orphans([])] == [handle.name]
    engine.backend.delete_attempt(handle)
    until(lambda: engine.backend.orphans([]) == [], what="no orphan is left")
    until(lambda: not any(alive(rank.pid) for rank in ranks), what="its ranks ended")
    assert str(engine.allocations["n1"]) in slurm.command("squeue", "--noheader", "--format=%i").split()


def test_state_changes_are_reported(engine: InAllocations) -> None:
    told: list[str] = []
    stop = threading.Event()
    watcher = threading.Thread(target=engine.backend.watch, args=(stop, told.append))
    watcher.start()
    try:
        handle = engine.submit(engine.job("wait", (1,)))
        until(lambda: handle.name in told, what="the watcher tells of its beginning")
        told.clear()
        engine.backend.cancel(handle, 0.0)
        until(lambda: handle.name in told, what="the watcher tells of its end")
    finally:
        stop.set()
        watcher.join()


# Ends ---------------------------------------------------------------------------------------------------------------


def test_the_end_of_an_allocation_is_named_as_such(engine: InAllocations, slurm: Slurm) -> None:
    handle = engine.submit(engine.job("polite", (1, 1)))
    ready(engine, handle)
    slurm.command("scancel", str(engine.allocations["n2"]))
    engine.until(handle, Phase.FAILED)
    engine.backend.cancel(handle, 5.0)  # as the reconciler does with what is left
    seen = ended(engine, handle)
    assert seen.cause is not None
    assert (seen.cause.code, seen.cause.params["node"], seen.cause.params["why"]) == (
        "ALLOCATION_ENDED", "node-1", "CANCELLED"
    )  # fmt: skip
    assert plugins.get_causes("slurm")["ALLOCATION_ENDED"].retry


def test_the_warning_before_the_time_limit_lets_ranks_save(engine: InAllocations, slurm: Slurm) -> None:
    """Slurm signals the allocation's steps, as `--signal` of environments asks it to; the same by hand."""
    handle = engine.submit(engine.job("polite", (1,)))
    ready(engine, handle)
    slurm.command("scancel", "--signal=URG", step_of(slurm, handle))
    seen = ended(engine, handle)
    assert seen.cause is not None
    assert (seen.cause.code, seen.cause.params["why"]) == ("ALLOCATION_ENDED", "TIMEOUT")
    assert [rank.exit_code for rank in seen.ranks] == [143]
    assert "leaving" in engine.log(handle, 0)


def test_a_cancelled_step_is_named_and_its_allocation_continues(engine: InAllocations, slurm: Slurm) -> None:
    handle = engine.submit(engine.job("polite", (1,)))
    ready(engine, handle)
    slurm.command("scancel", "--signal=TERM", step_of(slurm, handle))
    seen = ended(engine, handle)
    assert seen.cause is not None
    assert seen.cause.code == "STEP_CANCELLED"
    assert not plugins.get_causes("slurm")["STEP_CANCELLED"].retry
    assert str(engine.allocations["n1"]) in slurm.command("squeue", "--noheader", "--format=%i").split()


def test_a_runner_killed_with_its_step_is_lost(engine: InAllocations, slurm: Slurm) -> None:
    handle = engine.submit(engine.job("wait", (1, 1)))
    ranks = ready(engine, handle)
    slurm.command("scancel", "--signal=KILL", step_of(slurm, handle, 1))
    seen = engine.until(handle, Phase.FAILED)
    assert seen.cause is not None
    assert (seen.cause.code, seen.cause.params["node"]) == ("RUNNER_LOST", "node-1")
    engine.backend.cancel(handle, 0.0)
    engine.until_gone(handle)
    assert not any(alive(rank.pid) for rank in ranks)


def test_a_dead_machine_ends_the_attempt(engine: InAllocations, slurm: Slurm) -> None:
    handle = engine.submit(engine.job("polite", (1, 1)))
    ranks = ready(engine, handle)
    slurm.configure(patience=3)
    slurm.command("scontrol", "reconfigure")
    slurm.kill("n2")
    seen = until(lambda: (seen := engine.observe(handle)).phase is Phase.FAILED and seen, seconds=PATIENCE)
    assert (seen.cause.code, seen.cause.params["node"]) == ("NODE_LOST", "node-1")
    slurm.configure()
    slurm.command("scontrol", "reconfigure")
    engine.backend.cancel(handle, 3.0)
    until(lambda: not any(alive(rank.pid) for rank in ranks), what="no rank is left")
    engine.until_gone(handle)


def test_a_missing_interpreter_is_reported_at_once(engine: InAllocations) -> None:
    job = engine.job("ok", (1,))
    node = replace(job.nodes[0], engine={**job.nodes[0].engine, "python": "/no/such/python"})
    with pytest.raises(BackendError) as refused:
        engine.submit(replace(job, nodes=(node,)))
    assert (refused.value.code, refused.value.permanent) == ("INSIDE_RUNNER_FAILED", True)
    assert "/no/such/python" in refused.value.params["why"]


@pytest.mark.parametrize("head", ["inside", "beside"])
def test_a_task_may_mix_inside_and_outside(engine: InAllocations, head: str) -> None:
    """One node in an allocation and one in a job of its own, whichever is the head."""
    job = engine.job("polite", (1,))
    inside = job.nodes[0]
    beside = replace(
        inside, name="node-1", engine={"node": "n2", "cpus": 4}, way=RunLocation(False, "WAY_BESIDE_ASKED")
    )
    first, second = (inside, beside) if head == "inside" else (beside, inside)
    nodes = (replace(first, id="env-0"), replace(second, id="env-1"))
    handle = engine.submit(replace(job, nodes=nodes))
    assert {rank.node_rank for rank in ready(engine, handle)} == {0, 1}
    engine.backend.cancel(handle, 30.0)
    assert [rank.exit_code for rank in engine.until_gone(handle).ranks] == [143, 143]


# Allocations that users offer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["connection", "commands"])
def test_allocations_offered_by_users_are_environments_while_they_run(slurm: Slurm, way: str) -> None:
    connection, stop = {**getattr(slurm, way), "discover": True}, threading.Event()
    try:
        number = slurm.allocate("n2", "fermi project=nlp name=notes")
        slurm.allocate("n1", "somebody's own")
        following = discover.follow(connection, stop)
        [one] = next(following)
        assert (one.key, one.name, one.project, one.host, one.running) == (f"{number}/n2", "notes", "nlp", "n2", True)
        assert (one.owner, one.gpu_count, one.cpu_cores) == ("root", 2, 16)
        assert one.engine == {"job": number, "node": "n2", "user": "root"}
        slurm.command("scancel", str(number))
        assert next(following) == []
    finally:
        stop.set()
        slurm.restore()


def test_allocations_are_discovered_only_if_configured(slurm: Slurm) -> None:
    slurm.allocate("n1")
    try:
        assert next(discover.follow(slurm.connection, threading.Event())) == []
    finally:
        slurm.restore()


# The whole platform -------------------------------------------------------------------------------------------------


@pytest.mark.timeout(900)
def test_a_task_of_the_platform_trains_inside_its_allocations(slurm: Slurm, platform: Running) -> None:
    """One that the platform made, on a machine that it fills, and an allocation that a user offers; the platform is
    killed meanwhile."""

    def send(path: str, **body: Any) -> Any:
        answer = platform.api.post(path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()["data"]

    connection = {**slurm.connection, **slurm.commands, "python": sys.executable, "discover": True}
    cluster = send("/clusters", name="lab", backend="slurm", connection=connection)["id"]
    template = send(
        "/environment-templates", name="a machine", projectId="default", clusterId=cluster, kind="custom",
        gpuType="A100", gpuCount=2, emulated=True, cpuCores=16, memoryGb=8, startScript="sleep 3600",
    )["id"]  # fmt: skip
    made = send("/dev-environments/make", templateId=template, projectId="default", name="own")["id"]
    until(lambda: platform.get(f"/dev-environments/{made}")["status"] == "running", seconds=PATIENCE, what="it runs")
    host = platform.get(f"/dev-environments/{made}")["host"]
    free = next(name for name in ("n1", "n2") if name != host)
    number = slurm.command(
        "sbatch", "--parsable", f"--nodelist={free}", "--cpus-per-task=16", "--comment=fermi name=offered",
        "--output=/dev/null", "--wrap=sleep 3600",
    ).strip()  # fmt: skip

    def offered() -> str | None:
        items = platform.get("/dev-environments", pageSize=100)["items"]
        return next((one["id"] for one in items if one["name"] == "offered" and one["status"] == "running"), None)

    nodes = [made, until(offered, seconds=PATIENCE, what="the allocation is an environment")]
    body = platform.request(nodes, hyperparameters={**TINY, "batchSize": 2, "stepDelay": 0.2})
    preview = send("/training-tasks/preview", **body)
    assert preview["problems"] == []
    task_id = platform.create(nodes, hyperparameters={**TINY, "batchSize": 2, "stepDelay": 0.2})
    until(lambda: platform.items(task_id, "checkpoints"), seconds=PATIENCE, what="a checkpoint")
    jobs = slurm.command("squeue", "--noheader", "--format=%i").split()
    assert number in jobs
    assert len(jobs) == 2, "no other job"
    platform.kill_everything()
    platform.start()
    task = platform.until_state(task_id, "succeeded", seconds=PATIENCE)
    assert (task["worldSize"], task["step"], len(task["attempts"])) == (3, TINY["totalSteps"], 1)
    assert "[Rank 2] World Size: 3" in platform.log(task_id, 2)

    task_id = platform.create(nodes, hyperparameters={**TINY, "totalSteps": 5000, "batchSize": 2}, maxRestarts=0)
    until(lambda: platform.items(task_id, "checkpoints"), seconds=PATIENCE, what="a checkpoint")
    second = platform.create([made], hyperparameters={**TINY, "batchSize": 2})
    waits = until(
        lambda: (found := platform.get(f"/training-tasks/{second}/queue"))["number"] and found,
        what="it waits for the environment, and no queue of Slurm's decides when it runs",
    )  # fmt: skip
    assert (waits["number"], waits["engine"]) == (1, None)
    slurm.command("scancel", number)
    task = platform.until_state(task_id, "failed", seconds=PATIENCE)
    assert task["attempts"][0]["outcome"]["code"] == "ALLOCATION_ENDED"
    until(lambda: not offered(), seconds=PATIENCE, what="it is an environment no more")
    assert platform.until_state(second, "succeeded", seconds=PATIENCE)["worldSize"] == 2
