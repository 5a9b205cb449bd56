"""The environment becomes settings."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from server import env
from tests.platform_process import ROOT


def test_the_secret_key_is_created_once_with_mode_600(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FERMI_SECRET_KEY", raising=False)
    keys: list[str] = []
    threads = [threading.Thread(target=lambda: keys.append(env.read_secret_key(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(keys)) == 1
    assert len(keys[0]) >= 50
    assert [(path.name, path.stat().st_mode & 0o777) for path in tmp_path.iterdir()] == [("secret_key", 0o600)]


def test_a_given_secret_key_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERMI_SECRET_KEY", "given")
    assert env.read_secret_key(tmp_path) == "given"
    assert list(tmp_path.iterdir()) == []


def test_a_postgres_url_becomes_a_database() -> None:
    entry = env.parse_postgres_url("postgresql://fer%40mi:p%2Fw@db.example:6432/train?sslmode=require")
    assert entry["USER"] == "fer@mi"
    assert entry["PASSWORD"] == "p/w"
    assert (entry["HOST"], entry["PORT"], entry["NAME"]) == ("db.example", "6432", "train")
    assert entry["OPTIONS"]["sslmode"] == "require"
    assert entry["OPTIONS"]["pool"]["max_size"] == 20


def test_a_postgres_url_may_name_a_socket_folder() -> None:
    entry = env.parse_postgres_url("postgresql:///fermi?host=/run/pg&user=me")
    assert (entry["HOST"], entry["USER"], entry["PORT"]) == ("/run/pg", "me", "")
    assert entry["OPTIONS"].keys() == {"pool", *env.CONNECT_OPTIONS}


def test_another_kind_of_database_is_refused_by_name() -> None:
    with pytest.raises(env.InvalidSettingError, match=r"must begin with postgresql://, not mysql://"):
        env.parse_postgres_url("mysql://x/y")


def test_celery_gets_its_own_spelling_of_a_socket() -> None:
    assert env.make_celery_url("unix:///data/run/broker.sock") == "redis+socket:///data/run/broker.sock"
    assert env.make_celery_url("unix://:word@/run/broker.sock") == "redis+socket://:word@/run/broker.sock"
    assert env.make_celery_url("redis://h:6379/0") == "redis://h:6379/0"


@pytest.mark.parametrize(("text", "value"), [("", True), ("0", False), ("no", False), ("False", False), ("1", True)])
def test_boolean_flags_accept_usual_spellings(text: str, value: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERMI_X", text)
    assert env.read_flag("FERMI_X", default=True) is value


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("FERMI_ISOLATION", "docker", "one of auto, user, landlock, off"),
        ("FERMI_LOG", "xml", "one of lines, json"),
        ("FERMI_LOG_LEVEL", "loud", "one of INFO, DEBUG, WARNING, ERROR, CRITICAL"),
        ("FERMI_LOG_ZONE", "Mars/Base", "a time zone such as Asia/Shanghai"),
        ("FERMI_LOG_ZONE", "../etc/passwd", "a time zone such as Asia/Shanghai"),
        ("FERMI_MASTER_PORTS", "29500", "two ports from 1024 to 65535 such as 29500-32767"),
        ("FERMI_MASTER_PORTS", "32767-29500", "two ports from 1024 to 65535 such as 29500-32767"),
        ("FERMI_PREFLIGHT_PATIENCE", "long", "a number of seconds greater than 0"),
        ("FERMI_WORKER_HEARTBEAT", "0", "a number of seconds greater than 0"),
        ("FERMI_WORKER_LOST", "nan", "a number of seconds greater than 0"),
    ],
)
def test_an_invalid_value_ends_the_process_with_the_valid_ones(
    name: str, value: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.check_settings()
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        env.check_settings()
    assert ended.value.code == f"{name} must be {wanted}, not {value!r}."


def test_a_process_reports_an_invalid_setting_without_a_traceback(tmp_path: Path) -> None:
    more = {"FERMI_ISOLATION": "docker", "FERMI_DATA": str(tmp_path), "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}
    for program in (["manage.py", "check"], ["-m", "server.beat"], ["-m", "server.web"]):
        done = subprocess.run(
            [sys.executable, *program],
            env={**os.environ, **more},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        sentence = "FERMI_ISOLATION must be one of auto, user, landlock, off, not 'docker'."
        assert (done.returncode, done.stderr.splitlines()[-1:]) == (1, [sentence]), done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("given", "traced"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "fermi"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_a_collector_enables_tracing(given: dict[str, str], traced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert env.has_trace_collector() is traced


def test_without_its_packages_tracing_is_off_with_a_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    monkeypatch.setattr(env, "find_spec", absent)
    assert not env.has_trace_collector()
    assert f"{sys.executable} -m pip install 'opentelemetry-sdk" in caplog.text


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("FERMI_AUDIT_SYSLOG", "logs.example.org:514", "must be tcp://, tls:// or udp://host:port"),
        ("FERMI_AUDIT_SYSLOG", "tcp://logs.example.org", "must be tcp://, tls:// or udp://host:port"),
        ("FERMI_AUDIT_WEBHOOK", "ftp://hooks.example.org", "must be an address that begins with https://"),
        ("FERMI_AUDIT_WEBHOOK", "https://hooks.example.org", "must have 16 characters or more"),
        ("FERMI_AUDIT_START", "yesterday", "must be `now` or a time"),
        ("FERMI_AUDIT_CA", "/nowhere/ca.pem", "must be the path of a file"),
    ],
)
def test_a_wrong_setting_of_the_audit_stream_is_refused(
    name: str, text: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(env.InvalidSettingError, match=sentence):
        env.read_setting(name)


def test_a_secret_may_be_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("a secret of the tests\n")
    monkeypatch.setenv("FERMI_AUDIT_WEBHOOK_SECRET_FILE", str(tmp_path / "secret"))
    monkeypatch.setenv("FERMI_AUDIT_WEBHOOK", "https://hooks.example.org")
    assert env.read_secret_text("FERMI_AUDIT_WEBHOOK_SECRET") == "a secret of the tests"
    assert env.read_setting("FERMI_AUDIT_WEBHOOK") == "https://hooks.example.org"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("FERMI_PASSWORD_LENGTH", "7"),
        ("FERMI_SECOND_FACTOR", "some"),
        ("FERMI_SESSION_HOURS", "1.5"),
        ("FERMI_SESSION_IDLE_MINUTES", "-5"),
    ],
)
def test_a_wrong_rule_of_sign_in_is_refused(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(env.InvalidSettingError, match=name):
        env.read_setting(name)


def test_only_rules_of_sign_in_that_are_set_win_over_the_console(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERMI_SECOND_FACTOR", "administrators")
    monkeypatch.setenv("FERMI_SECOND_FACTOR_TOKENS_EXEMPT", "0")
    assert env.read_sign_in_policy() == {"second_factor": "administrators", "tokens_exempt": False}
