"""What an agent is told, and the words for what is wrong with it."""

import os
import stat
from pathlib import Path

import pytest

from fermi.agent import host_facts, usage
from fermi.agent.agent import Agent
from fermi.agent.errors import AgentError
from fermi.agent.settings import Settings, load_settings, parse_numbers
from fermi.agent.state import StateDirectory
from fermi.telemetry import nvidia_smi
from tests.fakes.workers import serving
from tests.polling import until


def refused(code: str, **settings) -> AgentError:
    with pytest.raises(AgentError) as caught:
        Agent(Settings(**{"server": "http://127.0.0.1:9", "token": "join", "warm": False, **settings}))
    assert caught.value.code == code
    for lang in ("zh", "en"):
        assert "{" not in caught.value.words(lang)
    return caught.value


def test_workers_are_named_by_ids_or_by_a_node_and_its_gpus():
    assert Settings(ids=("gn6-0", "gn6-12")).workers() == ("gn6", {"gn6-0": 0, "gn6-12": 12})
    assert Settings(node="gn6", gpus=(0, 2)).workers() == ("gn6", {"gn6-0": 0, "gn6-2": 2})
    assert Settings(ids=("a-b.c-7",)).workers() == ("a-b.c", {"a-b.c-7": 7})
    assert Settings(node="gn6").workers() == ("gn6", {})
    assert parse_numbers("0, 2,4-6") == (0, 2, 4, 5, 6)


@pytest.mark.parametrize(
    ("code", "settings"),
    [
        ("WORKER_ID_REQUIRED", {}),
        ("WORKER_ID_INVALID", {"ids": ("gn6",)}),
        ("WORKER_ID_INVALID", {"ids": ("gn6-00",)}),
        ("WORKER_ID_TWICE", {"ids": ("gn6-0", "gn6-0")}),
        ("WORKER_NODES_DIFFER", {"ids": ("gn6-0", "gn7-0")}),
        ("WORKER_NODES_DIFFER", {"ids": ("gn6-0",), "node": "gn7"}),
        ("WORKER_NODE_INVALID", {"node": "gn 6"}),
        ("WORKER_SERVER_REQUIRED", {"ids": ("gn6-0",), "server": ""}),
        ("WORKER_SERVER_INVALID", {"ids": ("gn6-0",), "server": "fermi.example:8000"}),
        ("WORKER_SERVER_INVALID", {"ids": ("gn6-0",), "server": "http://a:b:c"}),
        ("WORKER_FILE_UNREADABLE", {"ids": ("gn6-0",), "token": "", "token_file": "/nowhere/token"}),
        ("WORKER_STATE_UNUSABLE", {"ids": ("gn6-0",), "state": "/proc/fermi"}),
    ],
)
def test_invalid_settings_are_refused_with_a_message(code, settings):
    refused(code, **settings)


def test_an_unknown_gpu_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(nvidia_smi, "run_query", lambda fields: [{"index": "0"}, {"index": "1"}])
    error = refused("WORKER_GPU_MISSING", node="gn6", gpus=(0, 1, 2), state=str(tmp_path))
    assert error.params == {"found": "2", "allowed": "0, 1"}
    assert host_facts.choose_gpus(Settings(gpus=(1,)), {"gn6-1": 1}) == {"gn6-1": 1}
    assert host_facts.choose_gpus(Settings(), {"gn6-0": 0}) == {"gn6-0": 0}
    assert host_facts.choose_gpus(Settings(node="gn6"), {}) == {"gn6-0": 0, "gn6-1": 1}
    assert host_facts.choose_gpus(Settings(gpus=(5,), emulate=True), {"gn6-5": 5}) == {"gn6-5": None}


def test_a_host_without_gpus_is_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(nvidia_smi, "run_query", lambda fields: None)
    assert refused("WORKER_GPU_MISSING", node="gn6", gpus=(0,), state=str(tmp_path)).params["allowed"] == "–"
    assert host_facts.choose_gpus(Settings(), {"gn6-0": 0}) == {"gn6-0": None}
    assert host_facts.choose_gpus(Settings(node="gn6"), {}) == {"gn6-0": None}
    error = refused("WORKER_GPU_MISSING", ids=("gn6-0", "gn6-1"), state=str(tmp_path))
    assert error.params == {"found": "0, 1", "allowed": "–"}
    assert host_facts.choose_gpus(Settings(emulate=True), {"gn6-0": 0, "gn6-1": 1}) == {"gn6-0": None, "gn6-1": None}


def test_a_worker_is_run_by_one_agent_of_a_folder(tmp_path):
    first = StateDirectory(tmp_path, ["gn6-0", "gn6-1"])
    refused("WORKER_DRIVEN_HERE", ids=("gn6-1",), state=str(tmp_path))
    first.close()
    StateDirectory(tmp_path, ["gn6-1"]).close()


def test_secrets_have_mode_600_and_another_folder_is_another_machine(tmp_path):
    folder = StateDirectory(tmp_path / "a", ["gn6-0"])
    assert folder.secret("gn6-0") == ""
    folder.store_secret("gn6-0", "s")
    path = tmp_path / "a" / "workers" / "gn6-0" / "secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert folder.secret("gn6-0") == "s"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    folder.close()
    again, other = StateDirectory(tmp_path / "a", ["gn6-0"]), StateDirectory(tmp_path / "b", ["gn6-0"])
    assert again.machine == folder.machine != other.machine
    again.close()
    other.close()


def test_a_settings_file_has_the_option_names_and_options_override_it(tmp_path):
    toml, yaml = tmp_path / "worker.toml", tmp_path / "worker.yaml"
    toml.write_text('server = "http://a"\nnode = "gn6"\ngpus = [0, 1]\nwarm = false\n')
    yaml.write_text("server: http://a\nids: [gn6-0]\ngpus: 0-3\n")
    assert load_settings(str(toml), {"server": None}) == Settings(
        server="http://a", node="gn6", gpus=(0, 1), warm=False
    )
    assert load_settings(str(yaml), {"server": "http://b"}) == Settings(
        server="http://b", ids=("gn6-0",), gpus=(0, 1, 2, 3)
    )


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("WORKER_FILE_INVALID", "server = "),
        ("WORKER_SETTING_UNKNOWN", 'sever = "x"'),
        ("WORKER_SETTING_INVALID", "warm = 3"),
        ("WORKER_SETTING_INVALID", 'ids = "gn6-0"'),
        ("WORKER_GPUS_INVALID", 'gpus = "a"'),
    ],
)
def test_an_invalid_file_is_refused_with_a_message(tmp_path, code, text):
    path = tmp_path / "worker.toml"
    path.write_text(text)
    with pytest.raises(AgentError) as caught:
        load_settings(str(path), {})
    assert caught.value.code == code
    assert caught.value.words("zh") != caught.value.words("en")


def test_a_missing_file_is_refused_with_a_message():
    with pytest.raises(AgentError) as caught:
        load_settings("/nowhere/worker.toml", {})
    assert caught.value.code == "WORKER_FILE_UNREADABLE"


def test_a_refused_join_token_ends_a_new_agent(tmp_path):
    with serving(tmp_path / "logs") as platform:
        agent = Agent(Settings(platform.url, token="wrong", ids=("gn6-0",), state=str(tmp_path), warm=False))
        with pytest.raises(AgentError) as caught:
            agent.run()
        agent.close()
    assert caught.value.code == "WORKER_TOKEN_REFUSED"


def test_an_address_that_is_no_platform_is_refused_with_a_message(tmp_path):
    with serving(tmp_path / "logs") as platform:
        agent = Agent(Settings(f"{platform.url}/elsewhere", "join", ids=("gn6-0",), state=str(tmp_path), warm=False))
        with pytest.raises(AgentError) as caught:
            agent.run()
        agent.close()
    assert caught.value.code == "WORKER_REFUSED"
    assert "404" in caught.value.words("en")


def test_an_id_of_another_host_is_refused_with_a_message(tmp_path):
    with serving(tmp_path / "logs") as platform:
        platform.store.taken.add("gn6-0")
        agent = Agent(Settings(platform.url, "join", ids=("gn6-0",), state=str(tmp_path), warm=False))
        with pytest.raises(AgentError) as caught:
            agent.run()
        agent.close()
    assert caught.value.code == "WORKER_REFUSED"
    assert "another host has it" in caught.value.words("en")


def test_without_a_join_token_an_agent_needs_secrets(tmp_path):
    agent = Agent(Settings("http://127.0.0.1:9", ids=("gn6-0",), state=str(tmp_path), warm=False))
    with pytest.raises(AgentError) as caught:
        agent.run()
    agent.close()
    assert caught.value.code == "WORKER_TOKEN_REQUIRED"


def test_usage_covers_a_ranks_whole_session(tmp_path: Path):
    import subprocess

    from fermi.runner.processes import read_start_time

    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    process = subprocess.Popen(["python3", "-c", script], start_new_session=True)
    try:
        sampler, leader = usage.UsageSampler(), {"pid": process.pid, "start_time": read_start_time(process.pid)}

        def busy() -> bool:
            found = sampler.sample([("gn6-0", None, leader), ("gn6-1", None, None)])
            assert found["gn6-1"] == usage.NO_USAGE
            return (found["gn6-0"]["cpuPercent"] or 0) > 0 and found["gn6-0"]["memoryUsedMb"] > 0

        until(busy, what="the child's work is counted")
    finally:
        os.killpg(process.pid, 9)
        process.wait()
