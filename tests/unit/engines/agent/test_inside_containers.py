"""Nodes inside of containers of worker hosts, without containers: real keepers of real processes stand for them. With
real containers: tests/e2e/test_workers.py."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fermi.engines.agent import engine, environments
from fermi.engines.agent.engine import AgentBackend
from fermi.engines.environments import EnvironmentSpec
from fermi.engines.local import environment_runs
from fermi.jobs import run_location
from fermi.jobs.spec import Entrypoint, Handle, JobSpec, Node, Observation, Phase, Rendered
from fermi.planning import plugins
from fermi.runner.record_frames import strip_frames
from tests import envd_client
from tests.fakes.workers import MemoryStore
from tests.polling import until

SAYS = """
import os, sys, time
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], os.environ.get("KEY"), os.getcwd(), flush=True)
while "wait" in sys.argv and not os.path.exists("over"):
    time.sleep(0.02)
sys.exit(3 if "fails" in sys.argv and os.environ["RANK"] == "1" else 0)
"""


class Lab:
    def __init__(self, folder: Path) -> None:
        found = plugins.get_environment_backend("local", {"data_dir": str(folder / "host"), "isolation": "auto"})
        assert found
        self.hosts, self.data = envd_client.Hosts(found), folder / "data"
        self.data.mkdir()
        self.changed: list[str] = []
        for key in ("env-a", "env-b"):
            envd_client.Kept(found, EnvironmentSpec(key, key, "nlp", 1, kind="custom")).start().run("true")
            self.hosts.running[key] = f"{key}-1"
            (self.home(key) / "says.py").write_text(SAYS)
        self.backend = AgentBackend({"data_dir": str(self.data)})
        self._stop = threading.Event()
        self._watching = threading.Thread(target=self.backend.watch, args=(self._stop, self.changed.append))
        self._watching.start()

    def home(self, key: str) -> Path:
        return environment_runs.EnvironmentDisk.from_environment(self.data.parent / "host", key).home

    def rendered(self, *args: str, task: str = "task-x", attempt: int = 1) -> Rendered:
        nodes = tuple(Node(key, f"lab {key}", "127.0.0.1", image="training:1") for key in self.hosts.running)
        entry = Entrypoint("says.py", args)
        job = JobSpec(task, "pytorch-ddp", nodes, nodes[0].id, entrypoint=entry, attempt=attempt, project="nlp")
        job, problems = run_location.choose_run_locations(job, self.backend.find_run_locations(job))
        assert problems == []
        assert all(node.inside for node in job.nodes)
        return self.backend.render(job, plugins.get_framework(job.framework).plan(job))

    def observe(self, handle: Handle) -> Observation:
        return self.backend.observe([handle])[handle.name]

    def until(self, handle: Handle, phase: Phase) -> Observation:
        def reached() -> Observation | None:
            seen = self.observe(handle)
            return seen if seen.phase is phase else None

        found: Observation = until(reached, what=f"it is {phase}")
        return found

    def cancel(self, handle: Handle, grace_seconds: float = 5.0) -> Observation:
        def gone() -> Observation | None:
            self.backend.cancel(handle, grace_seconds)
            seen = self.observe(handle)
            return seen if seen.left is False else None

        found: Observation = until(gone, what="nothing of it is left")
        return found

    def close(self) -> None:
        self._stop.set()
        self._watching.join()
        for run in environment_runs.list_living_runs(self.data.parent / "host"):
            until(lambda run=run: (run.request_end(0.0), not run.read_state().left and not run.strays())[1])


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(engine, "store", MemoryStore())
    found = Lab(tmp_path)
    monkeypatch.setattr(environments, "hosts", found.hosts)
    yield found
    found.close()


FIRST = Handle("task-x-1", "task-x", 1, 2)


def test_ranks_run_in_their_environments_and_their_output_is_collected(lab: Lab) -> None:
    rendered = lab.rendered("wait")
    lab.backend.submit(rendered, {"KEY": "hush"})
    lab.backend.submit(rendered, {"KEY": "hush"})
    running = lab.until(FIRST, Phase.RUNNING)
    assert [(rank.rank, rank.node_rank, rank.state) for rank in running.ranks] == [(0, 0, "running"), (1, 1, "running")]
    until(lambda: all(lab.backend.logs(FIRST, rank, 0).data for rank in (0, 1)), what="both have said something")
    beside = lab.backend.get_rank_exec(rendered, FIRST, 1)
    assert beside.node_rank == 1
    beside.dial().close()
    for key in lab.hosts.running:
        (lab.home(key) / "over").touch()
    assert lab.until(FIRST, Phase.SUCCEEDED)
    until(lambda: lab.observe(FIRST).left is False, what="all was told")
    said = [strip_frames(lab.backend.logs(FIRST, rank, 0).data).decode().split() for rank in (0, 1)]
    assert [words[:4] for words in said] == [["rank", str(rank), "of", "2"] for rank in (0, 1)]
    assert {words[4] for words in said} == {"hush"}
    assert "task-x-1" in lab.changed
    assert [handle.name for handle in lab.backend.orphans(())] == ["task-x-1"]
    lab.backend.delete_attempt(FIRST)
    assert lab.backend.orphans(()) == []
    assert not [name for name in os.listdir(lab.data / "inside") if name.startswith("task-x-1")]


def test_a_failure_names_its_rank(lab: Lab) -> None:
    lab.backend.submit(lab.rendered("fails"))
    cause = lab.until(FIRST, Phase.FAILED).cause
    assert cause
    assert (cause.code, cause.params["exitCode"], cause.params["node"]) == ("RANK_FAILED", 3, "lab env-b")


def test_a_cancelled_attempt_ends_or_never_starts(lab: Lab) -> None:
    lab.backend.submit(lab.rendered("wait"))
    lab.until(FIRST, Phase.RUNNING)
    assert {rank.state for rank in lab.cancel(FIRST).ranks} == {"exited"}
    second = Handle("task-x-2", "task-x", 2, 2)
    lab.backend.cancel(second, 5.0)
    dialled = len(lab.hosts.streams)
    lab.backend.submit(lab.rendered("wait", attempt=2))
    seen = lab.observe(second)
    assert (seen.phase, seen.left, seen.ranks) == (Phase.ABSENT, False, ())
    assert len(lab.hosts.streams) == dialled, "no environment heard of it"


def test_an_environment_that_ends_ends_its_ranks(lab: Lab) -> None:
    lab.backend.submit(lab.rendered("wait"))
    lab.until(FIRST, Phase.RUNNING)
    envd_client.Kept(lab.hosts.hosting, EnvironmentSpec("env-b", "b", "nlp", 1, kind="custom")).stop()
    del lab.hosts.running["env-b"]
    cause = lab.until(FIRST, Phase.FAILED).cause
    assert cause
    assert (cause.code, cause.params["node"]) in (
        ("CONTAINER_RESTARTED", "lab env-b"),
        ("RUNNER_TERMINATED", "lab env-b"),
    )
    assert lab.cancel(FIRST).left is False


def test_a_lost_host_ends_the_attempt_and_is_asked_again_when_it_is_back(lab: Lab) -> None:
    lab.backend.submit(lab.rendered("wait"))
    lab.until(FIRST, Phase.RUNNING)
    lab.hosts.lose()
    cause = lab.until(FIRST, Phase.FAILED).cause
    assert cause
    assert (cause.code, cause.params) == ("HOST_LOST", {"host": "gn1"})
    lab.backend.cancel(FIRST, 5.0)
    assert lab.observe(FIRST).left is False, "what runs there is ended when the host is back"
    lab.backend.delete_attempt(FIRST)
    assert [handle.name for handle in lab.backend.orphans(())] == ["task-x-1"], "it is asked for again"
    lab.hosts.status = "online"
    until(lambda: (lab.backend.delete_attempt(FIRST), not lab.backend.orphans(()))[1], what="nothing is kept of it")
