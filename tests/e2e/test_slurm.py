"""Training on a real Slurm with two nodes on this machine, through slurmrestd and through its commands; and what
becomes of it when the controller, a node or somebody else gets in the way."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fermi import messages
from fermi.engines.check_results import CheckLevel
from fermi.engines.slurm import rest
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Cause, Handle, Observation, Phase, RankStatus
from fermi.planning import checks, plugins
from fermi.tokenized_data import iter_stdlib_files, tokenize_text
from tests.contract.conftest import OnSlurm
from tests.platform_process import Running
from tests.polling import until
from tests.slurm import Slurm, started
from tests.trainer import TINY

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PATIENCE = 240.0
QUICK = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0", "JAX_PLATFORMS": "cpu"}


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with started() as lab:
        yield lab


@pytest.fixture
def own() -> Iterator[Slurm]:
    """One that may be broken for good."""
    with started() as lab:
        yield lab


@pytest.fixture
def engine(slurm: Slurm, tmp_path: Path) -> Iterator[OnSlurm]:
    engine = OnSlurm(slurm, tmp_path)
    yield engine
    slurm.restore()
    engine.close()


@pytest.fixture
def by_commands(slurm: Slurm, tmp_path: Path) -> Iterator[OnSlurm]:
    engine = OnSlurm(slurm, tmp_path, **slurm.commands)
    yield engine
    slurm.restore()
    engine.close()


def ready(engine: OnSlurm, handle: Handle) -> tuple[RankStatus, ...]:
    """Its ranks, once all of them run."""
    until(lambda: all("ready" in engine.log(handle, rank) for rank in range(handle.world_size)), what="ranks ready")
    return engine.until(handle, Phase.RUNNING).ranks


def run_dir(engine: OnSlurm, handle: Handle) -> Path:
    return engine.scratch / "data" / "runs" / handle.name


def job_id(engine: OnSlurm, handle: Handle) -> int:
    return int(json.loads((run_dir(engine, handle) / "submitted.json").read_text())["job"])


def status(engine: OnSlurm, handle: Handle, node_rank: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run_dir(engine, handle) / f"node-{node_rank}.status.json").read_text())
    return found


def alive(rank: RankStatus) -> bool:
    return Path(f"/proc/{rank.pid}").exists()


def waits_for(engine: OnSlurm, handle: Handle, code: str) -> Observation:
    def told() -> Observation | None:
        seen = engine.observe(handle)
        return seen if seen.waiting and seen.waiting.code == code else None

    return until(told, what=f"{code}: {engine.observe(handle)}")


# It trains ------------------------------------------------------------------------------------------------------


def test_jax_trains_on_two_nodes(engine: OnSlurm) -> None:
    """Its trainer is brought along, and each rank has a GPU of Slurm's. DDP: see the whole platform, below."""
    pytest.importorskip("jax")
    folder = engine.scratch / "data"
    data = tokenize_text(iter_stdlib_files(max_bytes=300_000), folder / "datasets" / "stdlib")
    job = replace(
        engine.on(engine.job("", (1, 1), env=QUICK), "n2", "n1"),
        entrypoint=None, framework="jax", hyperparameters={**TINY, "batchSize": 2}, train_data=str(data.train_path),
        valid_data=str(data.valid_path), checkpoint_dir=str(folder / "checkpoints"),
    )  # fmt: skip
    handle = engine.submit(job)
    seen = until(
        lambda: (seen := engine.observe(handle)).phase in (Phase.SUCCEEDED, Phase.FAILED) and seen, seconds=PATIENCE
    )
    assert seen.phase is Phase.SUCCEEDED, (seen, engine.log(handle, 0), engine.log(handle, 1))
    steps = [json.loads(line) for line in engine.log(handle, 0).splitlines() if line.startswith('{"step"')]
    assert sorted({point["step"] for point in steps}) == list(range(1, 9))
    assert list((folder / "checkpoints").iterdir())
    engine.until_gone(handle)
    [described] = [job for job in engine.backend.driver.jobs() if job.comment == f"fermi:{handle.name}"]
    assert (described.state, described.nodes) == ("COMPLETED", "n[1-2]")


def test_slurms_rank_variables_equal_the_plan(engine: OnSlurm, slurm: Slurm) -> None:
    """The master is n2, which Slurm counts second; uneven nodes are a heterogeneous job."""
    even = engine.submit(engine.on(engine.job("ok", (1, 1)), "n2", "n1"))
    uneven = engine.submit(engine.on(engine.job("ok", (1, 2)), "n2", "n1"))
    anywhere = engine.submit(engine.on(engine.job("ok", (1, 1)), "", ""))
    for handle in (even, uneven, anywhere):
        seen = engine.until(handle, Phase.SUCCEEDED, Phase.FAILED)
        assert seen.phase is Phase.SUCCEEDED, (seen, (run_dir(engine, handle) / "slurm.log").read_text())
    for handle in (even, uneven):
        hosts = [status(engine, handle, node)["host"] for node in (0, 1)]
        assert (hosts, [status(engine, handle, node)["SLURM_PROCID"] for node in (0, 1)]) == (["n2", "n1"], [0, 1])
    assert [status(engine, uneven, node)["SLURM_NODEID"] for node in (0, 1)] == [0, 1]
    assert [status(engine, anywhere, node)["SLURM_PROCID"] for node in (0, 1)] == [0, 1]
    assert [job.leader for job in engine.backend.driver.jobs() if job.comment == f"fermi:{uneven.name}"] == [
        job_id(engine, uneven)
    ] * 2
    assert "Requeue=0" in slurm.command("scontrol", "show", "job", str(job_id(engine, even)))


def test_the_commands_behave_as_slurmrestd(by_commands: OnSlurm) -> None:
    handle = by_commands.submit(by_commands.job("ok", (1, 2)))
    assert by_commands.until(handle, Phase.SUCCEEDED, Phase.FAILED).phase is Phase.SUCCEEDED
    stubborn = by_commands.submit(by_commands.job("stubborn", (1, 1)))
    ranks = ready(by_commands, stubborn)
    by_commands.backend.cancel(stubborn, 0.2)
    by_commands.until_gone(stubborn)
    assert not any(alive(rank) for rank in ranks)
    with pytest.raises(BackendError) as refused:
        by_commands.submit(by_commands.on(by_commands.job("ok", (1,)), "n9"))
    assert (refused.value.code, refused.value.permanent) == ("SLURM_NODE_INVALID", True)


# Once and only once ----------------------------------------------------------------------------------------------


def test_concurrent_and_repeated_submissions_start_one_job(engine: OnSlurm) -> None:
    job = engine.job("ok", (1, 1))
    handle, rendered = engine.handle(job), engine.backend.render(job, engine.plan(job))
    threads = [threading.Thread(target=engine.backend.submit, args=(rendered,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (run_dir(engine, handle) / "submitted.json").unlink()  # killed before it was written down
    engine.backend.submit(rendered)
    engine.until(handle, Phase.SUCCEEDED)
    assert len([one for one in engine.backend.driver.jobs() if one.comment == f"fermi:{handle.name}"]) == 1
    assert len((engine.scratch / "starts").read_text().splitlines()) == 2


def test_a_second_job_of_the_same_name_ends_at_once(engine: OnSlurm) -> None:
    """Should two be submitted for all that: the one that is first to begin is the attempt."""
    job = engine.job("wait", (1,))
    rendered = engine.backend.render(job, engine.plan(job))
    handle = engine.submit(job)
    ready(engine, handle)
    second = engine.backend.driver.submit(engine.backend._submission(rendered))
    until(lambda: engine.backend.driver.job(second)[0].state == "FAILED", what="the second job ends")
    assert engine.observe(handle).phase is Phase.RUNNING
    assert len((engine.scratch / "starts").read_text().splitlines()) == 1


def test_orphaned_jobs_are_found_and_removed(engine: OnSlurm) -> None:
    handle = engine.submit(engine.job("wait", (1,)))
    ranks = ready(engine, handle)
    assert engine.backend.orphans([handle.name]) == []
    assert [one.name for one in engine.backend.orphans([])] == [handle.name]
    engine.backend.delete_attempt(handle)
    until(lambda: engine.backend.orphans([]) == [], what="no orphan is left")
    until(lambda: not any(alive(rank) for rank in ranks), what="its ranks ended")


def test_state_changes_are_reported(engine: OnSlurm) -> None:
    told: list[str] = []
    stop = threading.Event()
    watcher = threading.Thread(target=engine.backend.watch, args=(stop, told.append))
    watcher.start()
    try:
        handle = engine.submit(engine.job("ok", (1,)))
        until(lambda: handle.name in told, what="the watcher tells of it")
    finally:
        stop.set()
        watcher.join()


# Faults ----------------------------------------------------------------------------------------------------------


def test_a_killed_controller_reports_nothing_and_costs_no_restart(engine: OnSlurm, slurm: Slurm) -> None:
    handle = engine.submit(engine.job("wait", (1, 1)))
    ranks = ready(engine, handle)
    slurm.save(job_id(engine, handle))
    slurm.kill("slurmctld")
    with pytest.raises(BackendError) as away:
        engine.observe(handle)
    assert (away.value.code, away.value.permanent) == ("SLURM_UNREACHABLE", False)
    slurm.begin_controller()
    until(slurm.answers, what="slurmctld is back")
    seen = engine.observe(handle)
    assert (seen.phase, [rank.pid for rank in seen.ranks]) == (Phase.RUNNING, [rank.pid for rank in ranks])


def test_job_numbers_of_a_controller_that_lost_its_state_are_not_trusted(own: Slurm, tmp_path: Path) -> None:
    """The one that has ended is still known by its folder; the one that ran is lost, its number somebody else's."""
    engine, slurm = OnSlurm(own, tmp_path), own
    done = engine.submit(engine.job("ok", (1,)))
    engine.until(done, Phase.SUCCEEDED)
    engine.until_gone(done)
    lost = engine.submit(engine.job("wait", (1,)))
    ranks = ready(engine, lost)
    slurm.forget_everything()
    assert engine.observe(done).phase is Phase.SUCCEEDED
    assert engine.observe(done).left is False
    seen = engine.observe(lost)
    assert (seen.phase, seen.cause.code) == (Phase.FAILED, "JOB_LOST")
    wanted = job_id(engine, lost)
    while (number := int(slurm.command("sbatch", "--parsable", "--hold", "--wrap=true"))) < wanted:
        pass
    assert number == wanted
    assert engine.observe(lost).cause.code == "JOB_LOST"
    engine.backend.cancel(lost, 0.0)
    engine.until_gone(lost)
    assert slurm.command("squeue", "--noheader", f"--jobs={number}"), "the stranger's job was left alone"
    until(lambda: not any(alive(rank) for rank in ranks), what="its ranks ended")


def test_a_dead_machine_ends_the_attempt_and_its_ranks(engine: OnSlurm, slurm: Slurm) -> None:
    """kill -9 of slurmd: nobody on that machine obeys Slurm any more, but the runner reads the folder."""
    handle = engine.submit(engine.job("polite", (1, 1)))
    ranks = ready(engine, handle)
    slurm.configure(patience=3)
    slurm.command("scontrol", "reconfigure")
    slurm.kill("n2")
    seen = until(lambda: (seen := engine.observe(handle)).phase is Phase.FAILED and seen, seconds=PATIENCE)
    assert seen.cause.code == "NODE_LOST"
    assert seen.cause.params["node"] == "n[1-2]"
    slurm.configure()
    slurm.command("scontrol", "reconfigure")
    engine.backend.cancel(handle, 3.0)
    until(lambda: not any(alive(rank) for rank in ranks), what="no rank is left")
    engine.until_gone(handle)


def test_an_external_scancel_is_named_as_such(engine: OnSlurm, slurm: Slurm) -> None:
    handle = engine.submit(engine.job("polite", (1, 1)))
    ranks = ready(engine, handle)
    slurm.command("scancel", str(job_id(engine, handle)))
    seen = engine.until(handle, Phase.FAILED)
    assert seen.cause.code == "JOB_CANCELLED"
    assert engine.until_gone(handle).cause.code == "JOB_CANCELLED"
    assert not any(alive(rank) for rank in ranks)


@pytest.mark.parametrize("mode", ["REQUEUE", "CANCEL"])
def test_a_preempted_job_is_named_as_such(engine: OnSlurm, slurm: Slurm, mode: str) -> None:
    """Where Slurm would rather requeue it, it cancels what may not be: src/slurmctld/preempt.c, slurm_job_preempt."""
    slurm.command("scontrol", "update", "PartitionName=main", f"PreemptMode={mode}")
    handle = engine.submit(engine.on(engine.job("polite", (1,)), "n1", gres="gpu:2"))
    [rank] = ready(engine, handle)
    slurm.command("sbatch", "--partition=urgent", "--nodelist=n1", "--gres=gpu:2", "--output=/dev/null", "--wrap=true")
    assert engine.until(handle, Phase.FAILED).cause.code == "PREEMPTED"
    assert engine.until_gone(handle).cause.code == "PREEMPTED"
    assert not alive(rank)


def test_the_warning_before_the_time_limit_lets_ranks_save(engine: OnSlurm, slurm: Slurm) -> None:
    """Slurm signals the step, some seconds before it ends the job; the same by hand, for nobody waits a minute."""
    handle = engine.submit(engine.job("polite", (1, 1)))
    ready(engine, handle)
    assert "--signal=23@50" in (run_dir(engine, handle) / "job.sh").read_text()
    slurm.command("scancel", "--signal=URG", f"{job_id(engine, handle)}.0")
    seen = engine.until(handle, Phase.FAILED)
    assert seen.cause.code == "TIME_LIMIT"
    assert [rank.exit_code for rank in engine.until_gone(handle).ranks] == [143, 143]
    assert all("leaving" in engine.log(handle, rank) for rank in (0, 1))


def test_a_job_waits_for_a_drained_node(engine: OnSlurm, slurm: Slurm) -> None:
    slurm.command("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=fan broken")
    handle = engine.submit(engine.job("ok", (1, 1)))
    waiting = waits_for(engine, handle, "NODE_UNAVAILABLE").waiting
    assert waiting is not None
    assert "n2" in waiting.params["why"] or "DRAINED" in waiting.params["why"].upper()
    report = plugins.get_check("slurm").findings(engine.backend.connection)
    [found] = [one for one in report if one.code == "NODES_NOT_READY"]
    assert (found.level, "n2 (fan broken)" in found.params["nodes"]) == (CheckLevel.WARN, True)
    slurm.command("scontrol", "update", "NodeName=n2", "State=RESUME")
    assert engine.until(handle, Phase.SUCCEEDED, Phase.FAILED).phase is Phase.SUCCEEDED


def test_a_pending_job_shows_its_reason_and_can_be_cancelled(engine: OnSlurm, slurm: Slurm) -> None:
    first = engine.submit(engine.on(engine.job("wait", (1, 1)), "n1", "n2", gres="gpu:2"))
    ready(engine, first)
    second = engine.submit(engine.on(engine.job("ok", (1,)), "n1"))
    waits_for(engine, second, "QUEUE_WAITING")
    slurm.command("scontrol", "hold", str(job_id(engine, second)))
    waits_for(engine, second, "JOB_HELD")
    engine.backend.cancel(second, 30.0)
    assert engine.until_gone(second).phase is Phase.ABSENT
    assert engine.observe(first).phase is Phase.RUNNING


@pytest.mark.parametrize("way", ["connection", "commands"])
def test_slurm_orders_by_priority_and_reports_position_and_start(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The first has all of a machine for as long as it says; of the others, which want it next, a low one is last."""
    monkeypatch.setattr("fermi.engines.slurm.engine.QUEUE_CACHE_SECONDS", 0.0)
    asked = {
        "account": {"projects": {"nlp": "words"}}, "partition": {"default": "main"}, "nice": {"low": 500, "high": 0},
        "time_limit": "45",
    }  # fmt: skip
    engine = OnSlurm(slurm, tmp_path, **getattr(slurm, way), **asked)

    def submit(mode: str, **changes: Any) -> Handle:
        job = engine.job(mode, (1,), priority=changes.pop("priority", "normal"), **changes)
        return engine.submit(engine.on(job, "n1", gres="gpu:2"))

    try:
        first = submit("wait", max_run=600.0, project="project-1", project_name="nlp")
        ready(engine, first)
        told = slurm.command("scontrol", "show", "job", str(job_id(engine, first)))
        assert "Account=words" in told
        assert "TimeLimit=00:12:00" in told, "what it says, its grace, the warning before the end, and a minute"
        low = submit("ok", priority="low", max_run=1e6)
        assert "TimeLimit=00:45:00" in slurm.command("scontrol", "show", "job", str(job_id(engine, low)))
        usual = submit("ok", max_run=60.0)

        def placed(handle: Handle, place: int) -> Cause | None:
            waits = engine.observe(handle).waiting
            return waits if waits and waits.params.get("position") == place and "begins" in waits.params else None

        begins = [
            until(lambda one=one, place=place: placed(one, place), what=f"place {place}, and when").params["begins"]
            for place, one in ((1, usual), (2, low))
        ]
        moment = time.time()
        assert moment < begins[0] < begins[1] < moment + 3600
        for lang in messages.LANGUAGES:
            assert "UTC" in messages.render_text("QUEUE_WAITING", lang, **engine.observe(low).waiting.params)[0]
        engine.backend.cancel(usual, 30.0)  # as a pause does
        assert engine.until_gone(usual).phase is Phase.ABSENT
        until(lambda: placed(low, 1), what="the next one moved up")
        engine.backend.cancel(first, 0.0)
        assert engine.until(low, Phase.SUCCEEDED, Phase.FAILED).phase is Phase.SUCCEEDED
    finally:
        slurm.restore()
        engine.close()


def test_a_rejection_by_slurm_is_reported_with_its_reason(engine: OnSlurm, slurm: Slurm) -> None:
    with pytest.raises(BackendError) as refused:
        engine.submit(engine.on(engine.job("ok", (1,)), "n1", partition="gpus"))
    assert (refused.value.code, refused.value.permanent) == ("SLURM_PARTITION_INVALID", True)
    with pytest.raises(BackendError) as refused:
        engine.submit(engine.on(engine.job("ok", (1,)), "n1", gres="gpu:9"))
    assert refused.value.code == "ENGINE_REJECTED"
    assert "not available" in str(refused.value.params["why"])
    too_long = OnSlurm(slurm, engine.scratch, **slurm.connection, time_limit="2:00:00")
    waits_for(too_long, too_long.submit(too_long.job("ok", (1,))), "JOB_IMPOSSIBLE")
    too_long.close()


def test_a_node_without_python_is_named_with_its_output(engine: OnSlurm) -> None:
    handle = engine.submit(engine.on(engine.job("ok", (1,)), "n1", python="/no/such/python"))
    seen = engine.until(handle, Phase.FAILED)
    assert seen.cause.code == "JOB_FAILED"
    assert "/no/such/python" in seen.cause.params["why"]
    assert engine.until_gone(handle).left is False


# Is it fit? ------------------------------------------------------------------------------------------------------


def test_the_check_reports_both_ways_of_access(slurm: Slurm, tmp_path: Path) -> None:
    socket = {**slurm.connection, "url": f"unix:{slurm.folder}/rest/socket"}
    token = tmp_path / "token"
    token.write_text(slurm.command("scontrol", "token", "username=root", "lifespan=600"))
    by_file = {"url": slurm.connection["url"], "user": "root", "token_file": str(token)}
    for connection in (slurm.connection, socket, by_file, slurm.commands):
        assert checks.find_connection_problems("slurm", connection) == []
        report = plugins.get_check("slurm").findings({"data_dir": str(tmp_path), **connection, "partition": "main"})
        fit = ["SLURM_REACHABLE", "SLURM_VERSION", "PARTITION_UP", "GPUS_FOUND", "SHARED_FOLDER_USABLE"]
        assert {one.code: one.level for one in report} == {
            **dict.fromkeys(fit, CheckLevel.PASS), "SLURM_RANKS_CONFINED_AS_PLATFORM": CheckLevel.WARN
        }  # fmt: skip
        assert next(one for one in report if one.code == "GPUS_FOUND").params == {"gpus": "gpu × 4", "nodes": 2}


def test_the_check_names_each_problem(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def codes(**changes: str) -> set[str]:
        report = plugins.get_check("slurm").findings({"data_dir": str(tmp_path), **slurm.connection, **changes})
        return {one.code for one in report if one.level is not CheckLevel.PASS} - {"SLURM_RANKS_CONFINED_AS_PLATFORM"}

    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    assert codes(partition="gpus") == {"PARTITION_MISSING"} | {"SLURM_GPUS_NOT_FOUND"}
    assert codes(key_file=str(key)) & {"SLURM_UNAUTHORIZED", "SLURM_UNREACHABLE"}, "22.05 does not tell which"
    asked = {**slurm.connection, "discover": True, "bin": str(tmp_path)}
    report = plugins.get_check("slurm").findings({"data_dir": str(tmp_path), **asked})
    assert [one.params for one in report if one.code == "SLURM_COMMAND_MISSING"] == [{"command": "srun"}]
    monkeypatch.setattr(rest, "TOKEN_SECONDS", -10)
    assert codes() == {"SLURM_UNAUTHORIZED"}
    assert codes(key_file=str(tmp_path / "absent")) == {"SLURM_TOKEN_UNREADABLE"}
    assert codes(url="http://127.0.0.1:9") == {"SLURM_UNREACHABLE"}
    report = plugins.get_check("slurm").findings({"data_dir": str(tmp_path), "bin": str(tmp_path)})
    assert report[0].code == "SLURM_COMMAND_MISSING"


# The whole platform ----------------------------------------------------------------------------------------------


@pytest.mark.timeout(900)
def test_a_task_of_the_platform_trains_on_slurm(slurm: Slurm, platform: Running) -> None:
    """From the API through the worker to Slurm; the controller is killed meanwhile. A second one is preempted, goes on,
    and is scancelled."""

    def send(path: str, **body: Any) -> Any:
        answer = platform.api.post(path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()["data"]

    connection = {**slurm.connection, "python": sys.executable}
    cluster = send("/clusters", name="lab", backend="slurm", connection=connection)["id"]
    report = send(f"/clusters/{cluster}/check")
    assert report["fit"], report
    mine = platform.get("/dev-environments/env-001")
    facts = {"zone": "machine room", "projectId": mine["projectId"], "clusterId": cluster, "gpuCount": 1,
             "gpuType": "A100", "emulated": True, "cpuCores": 4}  # fmt: skip
    nodes = [
        send("/dev-environments", name=f"slurm-{name}", engine={"node": name, "gres": "gpu:1"}, **facts)["id"]
        for name in ("n2", "n1")
    ]
    task_id = platform.create(nodes, hyperparameters={**TINY, "batchSize": 2, "stepDelay": 0.2})
    until(lambda: platform.items(task_id, "checkpoints"), seconds=PATIENCE, what="a checkpoint")
    slurm.save(int(slurm.command("squeue", "--noheader", "--format=%i", f"--name={task_id}-1")))
    slurm.restart_controller()
    task = platform.until_state(task_id, "succeeded", seconds=PATIENCE)
    assert (task["worldSize"], task["step"], len(task["attempts"])) == (2, TINY["totalSteps"], 1)
    assert "[Rank 1] World Size: 2" in platform.log(task_id, 1)

    task_id = platform.create(nodes, hyperparameters={**TINY, "totalSteps": 5000, "batchSize": 2}, maxRestarts=0)
    until(lambda: platform.items(task_id, "checkpoints"), seconds=PATIENCE, what="a checkpoint")
    urgent = ("--partition=urgent", "--nodelist=n1", "--gres=gpu:2", "--output=/dev/null", "--wrap=sleep 60")
    other = slurm.command("sbatch", "--parsable", *urgent).strip()
    waits = until(
        lambda: (found := platform.get(f"/training-tasks/{task_id}/queue"))["engine"] and found["engine"]["position"]
        and found, seconds=PATIENCE, what="it was preempted, and waits in Slurm's queue",
    )  # fmt: skip
    assert (waits["number"], waits["engine"]["position"], waits["reason"]["code"]) == (None, 1, "QUEUE_WAITING")
    slurm.command("scancel", other)
    until(lambda: platform.task(task_id)["status"] == "running", seconds=PATIENCE, what="it trains again")
    first, second = platform.task(task_id)["attempts"]
    assert first["outcome"]["code"] == "PREEMPTED"
    assert second["resumeFrom"], "it goes on from its checkpoint, and no restart was left to use up"
    slurm.command("scancel", f"--name={task_id}-2")
    task = platform.until_state(task_id, "failed", seconds=PATIENCE)
    assert task["reason"]["code"] == "JOB_CANCELLED"
    until(lambda: not slurm.command("squeue", "--noheader"), what="nothing of it is left")


def test_no_process_of_a_killed_rank_survives_its_job(engine: OnSlurm) -> None:
    handle = engine.submit(engine.job("wait", (1, 2)))
    ranks = ready(engine, handle)
    os.kill(ranks[2].pid or 0, signal.SIGKILL)
    seen = engine.until(handle, Phase.FAILED)
    assert (seen.cause.code, seen.cause.params["node"]) == ("RANK_KILLED", "node-1")
    engine.backend.cancel(handle, 0.0)
    engine.until_gone(handle)
    assert not any(alive(rank) for rank in ranks)
