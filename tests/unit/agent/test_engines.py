"""What an agent tells of its host's container engine."""

import os
from pathlib import Path

import pytest

from fermi.agent import agent as module
from fermi.agent import host_facts
from fermi.engines.local import container_engines
from tests.fakes.workers import agent, serving
from tests.podman import Podman
from tests.polling import until


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Podman:
    found = Podman(tmp_path / "podman")
    monkeypatch.setenv("PATH", f"{found.folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return found


def test_a_container_engine_is_reported_with_the_host_facts(podman: Podman, tmp_path: Path) -> None:
    with serving(tmp_path / "logs") as platform, agent(platform, tmp_path / "host", ids=("gn6-0",), containers=True):
        assert [facts["containers"] for facts in platform.facts] == ["podman 4.3.1"]


def test_an_unusable_or_disabled_container_engine_is_not_reported(podman: Podman, tmp_path: Path) -> None:
    podman.says(rootfs=[126, "crun: cgroups in hybrid mode not supported"])
    with serving(tmp_path / "logs") as platform:
        for number, wanted in enumerate((True, False)):
            with agent(platform, tmp_path / "host", ids=(f"gn6-{number}",), containers=wanted):
                assert platform.facts[-1]["containers"] == ""
    assert len(podman.list_calls("info")) == 1, "an agent that is to have none does not look"


def test_a_slow_container_engine_delays_no_heartbeat(
    podman: Podman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_facts, "ENGINE_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(container_engines, "RETRY_SECONDS", 0.0)
    podman.says(away="unable to connect to Podman")
    with serving(tmp_path / "logs") as platform, agent(platform, tmp_path / "host", ids=("gn6-0",), containers=True):
        assert [facts["containers"] for facts in platform.facts] == [""]
        podman.says()
        until(lambda: platform.facts[-1]["containers"] == "podman 4.3.1")
        before = len(platform.heartbeats)
        until(lambda: len(platform.heartbeats) > before + 2, what="it is heard with its new secrets")
        assert len(platform.facts) == 2
