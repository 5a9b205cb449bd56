"""An agent and its real ranks, on a platform that loses what it hears and what it says."""

import itertools
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fermi.agent.runs import EMPTY_SPEC, HostContext, RankRun
from fermi.agent.sandbox import HostSandbox
from fermi.agent.worker import Worker
from fermi.engines.agent import set_store
from fermi.engines.local.environment_runs import EnvironmentDisk
from fermi.jobs.spec import Handle, JobSpec, Late, Phase, encode_value
from fermi.planning import plugins
from fermi.runner import files, processes, sandbox
from fermi.runner.record_frames import strip_frames
from tests.contract.conftest import OnWorkers
from tests.fakes.workers import Platform, agent, serving
from tests.polling import until
from tests.process_state import alive


class Lab(OnWorkers):
    """One host, one agent that can be ended and started, one worker for all jobs."""

    def __init__(self, platform: Platform, scratch: Path) -> None:
        set_store(platform.store)
        super().__init__(plugins.get_backend("agent", {"data_dir": str(scratch / "data")}), scratch, platform.store)
        self.platform = platform
        self._running = ExitStack()
        self._tasks = itertools.count(1)
        self.on()

    def free(self) -> int:
        return 0

    def job(self, mode: str, gpus: tuple[int, ...] = (1,), **changes) -> JobSpec:
        return super().job(mode, gpus, **changes)

    def on(self) -> None:
        self.agent = self._running.enter_context(agent(self.platform, self.scratch / "host", ids=("node-0-0",)))

    def off(self) -> None:
        self._running.close()

    def close(self) -> None:
        super().close()
        self.off()

    def starts(self) -> list[int]:
        path = self.scratch / "starts"
        return [int(line.split()[1]) for line in path.read_text().splitlines()] if path.exists() else []

    def ready(self, handle: Handle) -> int:
        until(lambda: "ready" in self.log(handle, 0), what="the rank is ready")
        self.until(handle, Phase.RUNNING)
        return self.starts()[-1]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr("fermi.agent.agent.RETRY_SECONDS", (0.02, 0.1))
    with serving(tmp_path / "data" / "logs") as platform:
        lab = Lab(platform, tmp_path)
        yield lab
        platform.cut = lambda method, path: ""
        lab.close()


UNCONFINED = HostSandbox.from_paths(Path("/"), Path("/"), "python3", (), enabled=False)


def worker(folder: Path) -> Worker:
    return Worker("gn6-0", None, folder, HostContext(folder, folder / "workspace", "python3", UNCONFINED))


def test_reordered_answers_revert_nothing(tmp_path):
    one = worker(tmp_path)
    order = {"name": "task-x-1", "taskId": "task-x", "attempt": 1, "rank": 0, "digest": "d"}
    new, old = {"generation": 5, "order": order}, {"generation": 4, "order": None}
    assert one.learn(new, asked_at=1.0, now=3.0)
    assert not one.learn(new, asked_at=1.5, now=3.5)
    assert not one.learn(old, asked_at=2.0, now=4.0)
    assert one.wanted_name == "task-x-1"
    assert one.learn(old, asked_at=5.0, now=6.0)  # asked for since: the platform's database was restored
    assert one.wanted_name == ""


def test_nothing_starts_or_ends_before_the_first_answer_of_the_platform(tmp_path):
    one = worker(tmp_path)
    one.run_step()
    assert one.report({})["generation"] == 0
    assert one.startable() == []


def test_a_new_preparation_step_is_sent_at_once_and_details_with_the_next_heartbeat(tmp_path):
    one = worker(tmp_path)
    folder = tmp_path / "runs" / "task-x-1"
    folder.mkdir(parents=True)
    files.write_json_atomically(str(folder / "rank.json"), {**EMPTY_SPEC, "name": "task-x-1", "rank": 0})
    one.runs = {"task-x-1": RankRun(folder)}

    def seen(code: str, said: str) -> dict:
        doing = {"code": code, "file": "requirements.txt", "said": said}
        mine = {"pid": os.getpid(), "start_time": processes.read_start_time(os.getpid())}
        status = {**files.build_first_status("task-x-1", 0, "starting"), "runner": mine, "doing": doing}
        files.write_json_atomically(str(folder / "rank.status.json"), status)
        one.runs["task-x-1"].update_state()
        assert one.report({})["process"]["doing"] == doing
        return one.news()

    unpacking = seen("CODE_UNPACKING", "")
    first = seen("CODE_PACKAGES_PREPARING", "Collecting numpy")
    second = seen("CODE_PACKAGES_PREPARING", "Installing numpy")
    assert unpacking != first
    assert first == second


@pytest.mark.parametrize("writable", [True, False])
def test_a_host_without_write_access_to_the_data_uses_its_own_tree_and_says_so(tmp_path, writable):
    host, data = HostContext(tmp_path / "host", tmp_path / "w", "python3", UNCONFINED), tmp_path / "data"
    if not writable:
        data.write_text("not mounted")
    tree = data / "trees" / "task-x" / "code"
    rank = {"rank": 0, "local_rank": 0, "env": {}, "log": "logs/task-x/1/0.log"}
    order = {"snapshot": "…", "folder": "…", "requirements": "auto", "cache": "packages", "chosen": "/python-0"}
    spec = {
        "name": "task-x-1",
        "node_rank": 0,
        "command": [],
        "env": {},
        "ranks": [rank],
        "cwd": str(tree),
        "code": order,
    }
    run = RankRun.create(tmp_path / "run", {"spec": spec, "files": {}, "digest": "d"}, host)
    said = run.log.read_text() if run.log.exists() else ""
    assert run.spec["cwd"] == str(tree if writable else tmp_path / "run" / "code")
    assert ("lost with this attempt" in said and str(tree) in said) is not writable
    assert run.spec["code"]["chosen"] == str(tmp_path / "run" / "python")


def test_a_rank_runs_inside_an_environment_of_its_own_project_only(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "read_landlock_abi", lambda: 4)
    state = tmp_path / "state"
    confining = HostSandbox.from_paths(state, tmp_path / "w", sys.executable, (), enabled=True)
    host = HostContext(state, tmp_path / "w", sys.executable, confining)
    disk = EnvironmentDisk.from_environment(host.hosted, "env-a")
    disk.make("one")
    (disk.workspace / "sub").mkdir(parents=True)
    (disk.workspace / "sub" / "train.py").touch()
    (disk.own / "lib/python3.12/site-packages/tiny").mkdir(parents=True)

    def made(name, project="one", python="", script="sub/train.py", environment="env-a"):
        rank = {"rank": 0, "local_rank": 0, "env": {}, "log": f"logs/{name}/1/0.log"}
        inside = {"environment": environment, "project": project, "paths": [script]}
        spec = {
            "name": f"{name}-1", "node_rank": 0, "command": [encode_value(Late.PYTHON, {}), script], "ranks": [rank],
            "env": {}, "home": "homes/one", "inside": inside, "fork": True, "preload": ["torch"],
            **({"python": python} if python else {}),
        }  # fmt: skip
        run = RankRun.create(tmp_path / name, {"spec": spec, "files": {}, "digest": "d"}, host)
        return run.spec, run.log.read_text() if run.log.exists() else ""

    own, _ = made("a")
    assert own["command"][0] == own["python"] == f"{disk.own}/bin/python"
    assert (own["cwd"], own["env"]["HOME"], own["fork"]) == (str(disk.workspace), str(disk.home), True)
    assert own["venv"] == str(disk.own)
    assert own["confine"]["home"] == str(disk.home)
    assert own["confine"]["paths"][str(disk.home)] == own["confine"]["paths"][str(disk.workspace)] == "rwm"
    elsewhere, _ = made("b", script="../../disk.json")
    assert elsewhere["cwd"] == str(tmp_path / "w")
    named, _ = made("c", python="/opt/python")
    assert (named["command"][0], named["fork"]) == ("/opt/python", False)
    for name, about in {"d": {"project": "two"}, "e": {"environment": "../workers"}}.items():
        outside, said = made(name, **about)
        assert outside["command"][0] == sys.executable
        assert str(disk.home) not in outside["confine"]["paths"]
        assert "not kept here. Ranks run outside of it." in said


def test_a_busy_port_of_rank_0_is_named_and_no_rank_starts(lab):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        handle = lab.submit(lab.job("ok", master_port=port))
        cause = lab.until(handle, Phase.FAILED).cause
    assert (cause.code, cause.params["port"], cause.params["node"]) == ("MASTER_PORT_TAKEN", port, "node-0")
    assert cause.params["holder"].startswith(f"pid {os.getpid()} (")
    assert lab.starts() == []


def test_an_attempt_stopped_before_it_was_known_never_starts(tmp_path):
    one = worker(tmp_path)
    order = {"name": "task-x-1", "taskId": "task-x", "attempt": 1, "rank": 3, "digest": "d"}
    stop = {"name": "task-x-1", "graceSeconds": 30.0, "killAt": 1.0}
    one.learn({"generation": 2, "order": order, "stop": stop}, 0.0, 0.0)
    assert not one.needs_order()
    one.run_step()
    assert one.startable() == []
    seen = one.report({})["process"]
    assert (seen["name"], seen["rank"], seen["state"], seen["exitCode"]) == ("task-x-1", 3, "exited", None)


def test_an_order_whose_run_folder_was_removed_is_not_started_again(tmp_path):
    """The folder of a run was removed under a running attempt."""
    one = worker(tmp_path)
    order = {"name": "task-x-1", "taskId": "task-x", "attempt": 1, "rank": 3, "digest": "d", "begun": True}
    one.learn({"generation": 2, "order": order, "stop": None}, 0.0, 0.0)
    assert not one.needs_order()
    one.run_step()
    assert one.startable() == []
    assert one.report({})["process"]["state"] == "exited"


def test_lost_and_repeated_heartbeats_change_nothing(lab):
    numbers = itertools.count()
    cuts = ("before", "after", "", "after", "", 20)
    lab.platform.cut = lambda method, path: cuts[next(numbers) % len(cuts)] if "heartbeat" in path else ""
    handle = lab.submit(lab.job("ok"))
    assert lab.until(handle, Phase.SUCCEEDED, Phase.FAILED).phase is Phase.SUCCEEDED
    assert lab.until_gone(handle).phase is Phase.SUCCEEDED
    assert len(lab.starts()) == 1


def test_a_log_survives_a_network_cut_within_a_request(lab):
    numbers = itertools.count()
    cuts = (500, "after", "", "before", 3000)
    lab.platform.cut = lambda method, path: cuts[next(numbers) % len(cuts)] if method == "PUT" else ""
    handle = lab.submit(lab.job("lines"))
    lab.until(handle, Phase.SUCCEEDED)
    lab.until_gone(handle)
    printed = strip_frames(lab.log(handle, 0).encode()).decode()
    assert printed.splitlines()[1:] == [f"line {number}" for number in range(2000)]


def test_an_agent_that_stops_leaves_training_running_for_the_next_one(lab):
    handle = lab.submit(lab.job("polite"))
    pid = lab.ready(handle)
    lab.off()
    assert alive(pid)
    lab.on()
    until(lambda: lab.observe(handle).phase is Phase.RUNNING, what="it is known to run")
    assert lab.observe(handle).ranks[0].pid == pid
    lab.backend.cancel(handle, 30.0)
    assert lab.until_gone(handle).ranks[0].exit_code == 143
    assert "leaving" in lab.log(handle, 0)
    assert lab.starts() == [pid]


def test_an_agent_replaced_by_another_host_ends_its_ranks_at_start(lab):
    handle = lab.submit(lab.job("wait"))
    pid = lab.ready(handle)
    lab.off()
    lab.platform.store.take_over("node-0-0")
    lab.on()
    until(lambda: not alive(pid), what="the rank is ended")
    lab.platform.store.release_worker("node-0-0")


def test_files_damaged_by_a_host_crash_are_removed(tmp_path):
    folder = tmp_path / "runs" / "task-x-1"
    folder.mkdir(parents=True)
    (folder / "rank.json").write_text("")
    assert worker(tmp_path).runs == {}
    assert not folder.exists()


def test_ranks_that_ended_while_the_agent_was_down_are_reported_with_their_logs(lab):
    handle = lab.submit(lab.job("wait"))
    pid = lab.ready(handle)
    lab.off()
    os.kill(pid, signal.SIGKILL)
    lab.on()
    seen = lab.until(handle, Phase.FAILED)
    assert seen.cause.code == "RANK_KILLED"
    lab.until_gone(handle)


def test_training_continues_while_the_platform_is_away_and_is_reported_later(lab):
    handle = lab.submit(lab.job("polite"))
    pid = lab.ready(handle)
    lab.platform.cut = lambda method, path: "before"
    os.kill(pid, signal.SIGTERM)
    until(lambda: not alive(pid), what="the rank ended")
    until(lambda: all(run.is_over for run in lab.agent.workers[0].runs.values()), what="the agent knows")
    assert lab.observe(handle).phase is Phase.RUNNING
    lab.platform.cut = lambda method, path: ""
    seen = lab.until(handle, Phase.FAILED)
    assert seen.ranks[0].exit_code == 143
    lab.until_gone(handle)
    assert "leaving" in lab.log(handle, 0)


def test_a_returned_worker_ends_the_old_rank_before_starting_the_new_one(lab):
    """The platform gave the attempt up while its worker was silent, and ordered the next one."""
    first = lab.submit(lab.job("stubborn"))
    old = lab.ready(first)
    lab.platform.cut = lambda method, path: "before"
    until(lambda: lab.platform.store.known["node-0-0"].heartbeats > 0, what="a heartbeat")
    lab.platform.store.known["node-0-0"].status = "lost"
    assert lab.observe(first).phase is Phase.FAILED
    assert lab.observe(first).left is None
    assert lab.observe(first).cause.code == "WORKER_LOST"
    lab.backend.cancel(first, 3.0)
    assert lab.observe(first).left is False  # fenced
    lab.backend.delete_attempt(first)
    second = lab.submit(lab.job("wait"))
    assert alive(old)
    overlapped = threading.Event()

    def watch() -> bool:
        both = len(lab.starts()) > 1 and alive(old)
        if both:
            overlapped.set()
        return len(lab.starts()) > 1

    lab.platform.store.known["node-0-0"].status = "online"
    lab.platform.cut = lambda method, path: ""
    until(watch, what="the new rank")
    assert not overlapped.is_set()
    until(lambda: lab.observe(second).phase is Phase.RUNNING, what="the new attempt runs")
    assert len(lab.starts()) == 2


def test_a_worker_with_an_invalid_token_registers_again_once(lab):
    """Several of its requests are under way with the old one."""
    handle = lab.submit(lab.job("wait"))
    pid = lab.ready(handle)
    lab.platform.store.rotate("node-0-0")
    other = lab.platform.store.registrations
    lab.backend.cancel(handle, 0.0)
    lab.until_gone(handle)
    assert not alive(pid)
    assert lab.platform.store.registrations == other + 1


def test_a_worker_replaced_by_another_host_ends_its_ranks(lab):
    handle = lab.submit(lab.job("wait"))
    pid = lab.ready(handle)
    lab.platform.store.take_over("node-0-0")
    until(lambda: not alive(pid), what="the rank is ended")
    assert lab.observe(handle).phase is Phase.RUNNING  # nothing that it says counts any more
    lab.platform.store.release_worker("node-0-0")


def test_files_of_a_forgotten_attempt_are_removed_once_its_log_is_uploaded(lab):
    handle = lab.submit(lab.job("ok"))
    lab.until(handle, Phase.SUCCEEDED)
    lab.until_gone(handle)
    runs = lab.scratch / "host" / "workers" / "node-0-0" / "runs"
    assert [one.name for one in runs.iterdir()] == [handle.name]
    lab.backend.delete_attempt(handle)
    until(lambda: not list(runs.iterdir()), what="the folder is empty")
    assert not list((lab.scratch / "host" / "logs").rglob("*.log"))
    assert "env 0" in lab.log(handle, 0)


def test_a_rank_that_cannot_be_started_says_why_in_its_log(lab):
    lab.off()
    lab._running.enter_context(agent(lab.platform, lab.scratch / "host", ids=("node-0-0",), python="/nowhere/python"))
    handle = lab.submit(lab.job("ok"))
    seen = lab.until(handle, Phase.FAILED)
    assert seen.cause.code == "RANK_FAILED"
    assert seen.cause.params["exitCode"] == 127
    lab.until_gone(handle)
    assert "/nowhere/python" in lab.backend.logs(handle, 0, 0).data.decode()
