"""Files and outputs through the `fermi` command, a real server and a real task."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.platform_process import Running
from tests.polling import until

pytestmark = pytest.mark.e2e

SCRIPT = """
import os, pathlib
files, out = pathlib.Path(os.environ["FERMI_FILES_DIR"]), pathlib.Path(os.environ["FERMI_OUTPUT_DIR"])
(out / "copy").mkdir(exist_ok=True)
(out / "copy" / f"{os.environ['RANK']}.txt").write_text((files / "in" / "a.txt").read_text().upper())
"""


def run(
    platform: Running, tmp_path: Path, *arguments: str, text: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    env = {**platform.env, "XDG_CONFIG_HOME": str(tmp_path), "LANG": "en_US.UTF-8"}
    return subprocess.run(
        [sys.executable, "-m", "fermi.cli", *arguments], env=env, input=text, capture_output=True, timeout=240
    )


def done(answer: subprocess.CompletedProcess[bytes]) -> bytes:
    assert answer.returncode == 0, answer.stderr.decode()
    return answer.stdout


def test_files_are_uploaded_once_read_by_ranks_and_outputs_downloaded(platform: Running, tmp_path: Path) -> None:
    source = tmp_path / "in"
    (source / "deep").mkdir(parents=True)
    (source / "a.txt").write_text("hello")
    (source / "deep" / "b.bin").write_bytes(os.urandom(100_000))
    first = run(platform, tmp_path, "files", "put", str(source))
    assert b"2 uploaded, 0 already present" in first.stderr, first.stderr
    assert b"0 uploaded, 2 already present" in run(platform, tmp_path, "files", "put", str(source)).stderr
    done(run(platform, tmp_path, "files", "put", "-", "in/piped", text=b"piped\n"))
    assert done(run(platform, tmp_path, "files", "get", "in/piped", "-")) == b"piped\n"
    back = tmp_path / "back"
    done(run(platform, tmp_path, "files", "get", "in", str(back)))
    assert (back / "deep" / "b.bin").read_bytes() == (source / "deep" / "b.bin").read_bytes()
    done(run(platform, tmp_path, "files", "mv", "in/piped", "piped"))
    done(run(platform, tmp_path, "files", "rm", "piped"))

    workspace = platform.data / "workspace"
    workspace.mkdir(exist_ok=True)
    (workspace / "copying.py").write_text(SCRIPT)
    task = json.loads(
        done(run(platform, tmp_path, "submit", "--name", "copying", "--env", "env-local", "--max-restarts", "0",
                 "--script", "copying.py", "--wait", "-o", "json"))
    )  # fmt: skip
    listed = json.loads(done(run(platform, tmp_path, "outputs", task["taskId"], "ls", "copy", "-o", "json")))
    assert [item["path"] for item in listed["items"]] == ["copy/0.txt"]
    done(run(platform, tmp_path, "outputs", task["taskId"], "get", ".", str(tmp_path / "out")))
    assert (tmp_path / "out" / "copy" / "0.txt").read_text() == "HELLO"


def test_uploads_resume_after_a_kill_of_client_or_platform(platform: Running, tmp_path: Path) -> None:
    big = tmp_path / "big.bin"
    big.write_bytes(os.urandom(24 << 20))
    project = platform.api.get("/projects").json()["data"]["items"][0]["id"]
    uploads = f"/projects/{project}/file-uploads"
    body = {"path": "big.bin", "sizeBytes": 24 << 20, "sha256": hashlib.sha256(big.read_bytes()).hexdigest()}
    upload = platform.api.post(uploads, json=body).json()["data"]["id"]
    piece = {"Content-Type": "application/octet-stream"}
    sent = platform.api.put(
        f"{uploads}/{upload}/content", params={"offset": 0}, content=big.read_bytes()[: 10 << 20], headers=piece
    )
    assert sent.json()["data"]["offset"] == 10 << 20
    too_large = platform.api.put(
        f"{uploads}/{upload}/content", params={"offset": 10 << 20}, content=b"x" * (17 << 20), headers=piece
    )
    assert (too_large.status_code, too_large.json()["error"]) == (413, "BODY_TOO_LARGE")

    platform.kill("web")
    until(lambda: _answers(platform), seconds=60, what="the web process is back")
    assert platform.api.get(f"{uploads}/{upload}").json()["data"]["offset"] == 10 << 20
    answer = run(platform, tmp_path, "files", "put", str(big))
    assert b"1 uploaded" in answer.stderr, answer.stderr
    assert platform.api.get(f"{uploads}/{upload}").json()["data"]["state"] == "done"  # it was this very upload
    done(run(platform, tmp_path, "files", "get", "big.bin", str(tmp_path / "copy.bin")))
    assert (tmp_path / "copy.bin").read_bytes() == big.read_bytes()


def _answers(platform: Running) -> bool:
    try:
        return platform.api.get("/auth/me").status_code == 200
    except httpx.HTTPError:
        return False
