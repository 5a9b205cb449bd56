"""The way in for people who know ProcGuard's commands and its configuration file."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from fermi.cli import texts as languages
from procguard import __main__ as procguard
from procguard import config, worker_launcher

ROOT = Path(__file__).resolve().parents[2]

ORIGINAL = {
    "logging": {"level": "INFO", "file": "logs/procguard.log", "format": "%(message)s"},
    "state": {"state_file": "data/procguard_state.yaml", "auto_save": True},
    "communication": {"adapter_type": "mock", "adapter_config": {"host": "0.0.0.0", "port_base": 5550}},
    "monitoring": {"interval": 1.0, "heartbeat_timeout": 10.0, "zombie_detection": True, "cpu_threshold": 0.1},
    "recovery": {"enable_auto_recovery": True, "max_recovery_attempts": 3},
    "web": {"enabled": True, "host": "0.0.0.0", "port": 5000},
    "workers": [{"worker_id": "worker_0", "command": "python train.py"}],
}
WITHOUT = {"logging.file", "logging.format", "communication", "monitoring.interval", "monitoring.zombie_detection",
           "monitoring.cpu_threshold", "recovery.enable_auto_recovery", "recovery.max_recovery_attempts",
           "workers"}  # fmt: skip


@pytest.fixture(autouse=True)
def in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(languages, "choose_language", lambda _: "en")


def written(folder: Path, content: object) -> Path:
    path = folder / "procguard_config.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_the_shipped_sample_is_read_completely() -> None:
    found, ignored = config.load_config(ROOT / procguard.DEFAULT_CONFIG)
    assert ignored == []
    assert {variable: value for variable, (_, value) in found.items()} == {
        "FERMI_HOST": "127.0.0.1", "FERMI_PORT": "5000", "FERMI_DATA": "var", "FERMI_LOG_LEVEL": "INFO",
        "FERMI_WORKER_HEARTBEAT": "5", "FERMI_WORKER_LOST": "15",
    }  # fmt: skip


def test_every_procguard_key_is_read_or_named(tmp_path: Path) -> None:
    found, ignored = config.load_config(written(tmp_path, ORIGINAL))
    assert {line.split(": ")[0] for line in ignored} == WITHOUT
    assert "group" in "".join(ignored)
    assert found["FERMI_DATA"] == ("state.state_file", "data")
    assert found["FERMI_WORKER_LOST"] == ("monitoring.heartbeat_timeout", "10.0")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"web": {"prot": 5000}}, "web.prot: unknown setting. Did you mean web.port?"),
        ({"web": {"enabled": False}}, "web.enabled: False: the platform is its web service"),
        ({"slurm": {"enabled": True}}, "docs/slurm.md"),
        ({"of_ours": {"team": "vision"}}, "of_ours.team: unknown setting."),
    ],
)
def test_an_unread_key_names_its_replacement(tmp_path: Path, content: object, said: str) -> None:
    [line] = config.load_config(written(tmp_path, content)).ignored
    assert said in line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"web": {"port": 70000}}, "web.port: 70000 is not valid; expected: a port from 1 to 65535"),
        ({"monitoring": {"heartbeat_timeout": "ten"}}, "expected: a number of seconds above 0"),
        (["web"], "must contain names and values"),
    ],
)
def test_an_unreadable_value_names_the_right_one(tmp_path: Path, content: object, said: str) -> None:
    with pytest.raises(config.ConfigProblemsError) as problems:
        config.load_config(written(tmp_path, content))
    assert said in str(problems.value)


def test_the_platform_uses_the_file_and_the_environment_overrides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    began: list[list[str]] = []
    environment = {"FERMI_PORT": "8123"}
    monkeypatch.setattr(procguard.os, "environ", environment)
    monkeypatch.setattr(procguard.os, "execv", lambda _, words: began.append(words[1:]))
    path = written(tmp_path, {"web": {"host": "0.0.0.0", "port": 5000}, "slurm": {"enabled": True}, "ours": 1})
    procguard.main(["--config", str(path)])
    assert began == [[str(ROOT / "scripts" / "setup.py"), "up"]]
    assert environment == {"FERMI_PORT": "8123", "FERMI_HOST": "0.0.0.0"}
    said = capsys.readouterr()
    assert "FERMI_PORT=8123 takes precedence" in said.out
    assert "starts without these settings, which it does not read (2)" in said.err
    assert procguard.main(["--config", str(path), "--daemon", "--gpu-count", "4"]) == 2
    assert len(began) == 1
    said = capsys.readouterr().err
    assert "--daemon: " in said
    assert "--gpu-count: " in said


def test_without_a_clone_the_command_to_run_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(procguard, "SETUP_SCRIPT", tmp_path / "setup.py")
    assert procguard.main([]) == 2
    assert "make up" in capsys.readouterr().err


def test_launcher_flags_become_those_of_fermi_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_launcher.os, "environ", {"WORKER_ID": "gn6-0", "WORKING_DIR": "/srv/training"})
    command = ["--manager-url", "http://fermi:5000", "--command", "python train.py --epochs 100", "--token", "join_x"]
    words, without, told = worker_launcher.translate_arguments(command)
    assert words == ["--id", "gn6-0", "--server", "http://fermi:5000", "--workspace", "/srv/training",
                     "--token", "join_x"]  # fmt: skip
    assert (without, told) == ([], "python train.py --epochs 100")
    made = worker_launcher.build_group_command(told, "gn6-0")
    assert made == "fermi groups create training gn6-0 --script train.py --arg --epochs --arg 100"
    assert worker_launcher.translate_arguments(["--slurm", "--env", "{}", "--auto-start"])[1] == [
        "--env",
        "--slurm",
        "--auto-start",
    ]


def test_every_text_exists_in_both_languages() -> None:
    found = tomllib.loads((ROOT / "platform" / "procguard" / "texts.toml").read_text("utf-8"))
    assert found["zh"].keys() == found["en"].keys()
    named = {
        *config.ALWAYS_ON_KEYS,
        *config.REPLACED_KEYS,
        *procguard.UNSUPPORTED_FLAGS,
        *worker_launcher.UNSUPPORTED_FLAGS,
    }
    assert named <= found["en"].keys()


def test_the_launcher_finds_packages_of_the_clone() -> None:
    command = [sys.executable, "-S", "-m", "procguard.worker_launcher", "--help"]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--worker-id" in done.stdout
