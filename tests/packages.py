"""Code that brings a package of its own, which takes as long to build as a test wants it to, or cannot be built."""

import contextlib
import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fermi.runner import code
from fermi.runner.code import SnapshotFile
from tests.e2e.test_code import fermi
from tests.platform_process import Running
from tests.polling import until

FILE = "requirements.txt"
PYPROJECT = """[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = """import os, time, zipfile

def build_wheel(folder, *_):
    if os.environ.get("NODE_RANK") == {broken!r}:
        raise SystemExit("there is no compiler here")
    while not os.path.exists({gate!r}):
        time.sleep(0.02)
    made = "slowtoy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, made), "w") as wheel:
        wheel.writestr("slowtoy.py", "WORD = 'toy'\\n")
        for name, lines in (
            ("METADATA", ("Metadata-Version: 2.1", "Name: slowtoy", "Version: 1.0")),
            ("WHEEL", ("Wheel-Version: 1.0", "Root-Is-Purelib: true", "Tag: py3-none-any")),
            ("RECORD", ()),
        ):
            wheel.writestr("slowtoy-1.0.dist-info/" + name, "".join(line + "\\n" for line in lines))
    return made
"""
SCRIPT = "import slowtoy\nprint('trains with', slowtoy.WORD, flush=True)\n"


def tree(gate: Path, broken: int | None = None) -> dict[str, str]:
    """Its package is built once there is a file `gate`, and on the node `broken` never."""
    return {
        "train.py": SCRIPT,
        FILE: f"--no-index\n./toy  # broken on node: {broken}\n",
        "toy/pyproject.toml": PYPROJECT,
        "toy/backend.py": BACKEND.format(gate=str(gate), broken=str(broken)),
    }


def submit(platform: Running, folder: Path, files: dict[str, str], environments: list[str]) -> str:
    """A task that brings these files, sent from `folder`."""
    for name, text in files.items():
        path = folder / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    sent = fermi(platform, folder, "code", "send", str(folder / "mine"), "-o", "json")
    assert sent.returncode == 0, sent.stderr
    about = {"code": {"snapshot": json.loads(sent.stdout)["id"]}, "entrypoint": {"script": "train.py", "args": []}}
    answer = platform.api.post("/training-tasks", json=platform.request(environments, **about))
    assert answer.status_code == 201, answer.text
    key: str = answer.json()["data"]["taskId"]
    return key


def until_prepared_on(platform: Running, task_id: str, *nodes: str) -> dict[str, Any]:
    """The task, once it says that packages are prepared on all of these, with what the builder said last."""
    begin = f"Preparing packages of {FILE} on {', '.join(nodes)}: "

    def told() -> dict[str, Any] | None:
        task = platform.task(task_id)
        assert task["status"] in ("initializing", "queued", "starting"), task
        reason = task["reason"] or {"code": "", "message": ""}
        return task if reason["message"].startswith(begin) and reason["message"] != begin else None

    return until(told, seconds=180, what=f"packages are prepared on {nodes}")


def archive(archives: Path, files: dict[str, str]) -> str:
    """Laid there as the platform lays it; the snapshot's id."""
    contents = {hashlib.sha256(text.encode()).hexdigest(): text.encode() for text in files.values()}
    listed = []
    for name, text in sorted(files.items()):
        listed.append(
            SnapshotFile(name, code.PLAIN_MODE, len(text.encode()), hashlib.sha256(text.encode()).hexdigest())
        )

    @contextlib.contextmanager
    def content(sha256: str) -> Iterator[io.BytesIO]:
        yield io.BytesIO(contents[sha256])

    manifest = code.serialize_manifest(listed)
    folder = archives / code.compute_snapshot_id(manifest)
    folder.mkdir(parents=True)
    (folder / code.MANIFEST_NAME).write_bytes(manifest)
    with (folder / code.ARCHIVE_NAME).open("wb") as out:
        code.write_archive(out, listed, content)
    return folder.name
