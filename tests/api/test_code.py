"""Code of a project: brought in parts, seen by its members alone, compared, and what a task may ask of it."""

import hashlib
import io
import os
import subprocess
import tarfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from apps.clusters.models import Cluster
from apps.code import fetch as code_fetch
from apps.code import from_environment, git, store, uploads
from apps.code.errors import FetchError
from apps.code.models import Blob, Fetch, Snapshot
from apps.common.clock import now
from apps.training.core import code
from apps.training.models import Task
from apps.training.services import restart as going_on
from apps.training.states import TaskState
from fermi.jobs import snapshot
from fermi.jobs.snapshot import SnapshotFile
from fermi.jobs.spec import JobSpec
from tests.api.conftest import BASE, Answer, Api

pytestmark = pytest.mark.database


@pytest.fixture(autouse=True)
def data_dir(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path / "platform"
    settings.DATA_DIR.mkdir()
    return settings.DATA_DIR


def file(path: str, content: bytes, mode: int = snapshot.PLAIN_MODE) -> SnapshotFile:
    return SnapshotFile(path, mode, len(content), hashlib.sha256(content).hexdigest())


TREE = {"train.py": b"print('one')\n", "lib/model.py": b"SIZE = 1\n", "data.bin": b"\0\1\2", "same.py": b"SIZE = 1\n"}


def manifest(tree: dict[str, bytes], *links: SnapshotFile) -> bytes:
    return snapshot.serialize_manifest([*(file(path, content) for path, content in tree.items()), *links])


def framed(*contents: bytes) -> bytes:
    return b"".join(b"%s %d\n%s" % (hashlib.sha256(one).hexdigest().encode(), len(one), one) for one in contents)


def raw(api: Api, path: str, body: bytes, project: str = "project-one") -> Answer:
    sent = api.client.generic("PUT", f"{BASE}{path}?project={project}", body, "application/octet-stream",
                              headers={"Authorization": f"Bearer {api.token}"})  # fmt: skip
    return Answer(sent.status_code, sent.json())


def upload_snapshot(api: Api, tree: dict[str, bytes], *links: SnapshotFile, project: str = "project-one") -> str:
    """Its id, once all of it is there."""
    said = manifest(tree, *links)
    key = snapshot.compute_snapshot_id(said)
    answer = raw(api, f"/code/snapshots/{key}", said, project).data
    by_hash = {hashlib.sha256(one).hexdigest(): one for one in tree.values()}
    raw(api, f"/code/snapshots/{key}/blobs", framed(*(by_hash[one] for one in answer["missing"])), project)
    assert api.post(f"/code/snapshots/{key}/finish", {"projectId": project}).status == 200
    return key


def test_only_missing_contents_are_requested_and_equal_contents_once(owner: Api) -> None:
    said = manifest(TREE)
    key = snapshot.compute_snapshot_id(said)
    first = raw(owner, f"/code/snapshots/{key}", said).data
    assert (len(first["missing"]), first["missingBytes"], first["finished"]) == (3, 13 + 9 + 3, False)
    upload_snapshot(owner, TREE)
    more = {**TREE, "new.py": b"new\n"}
    assert (
        raw(owner, f"/code/snapshots/{snapshot.compute_snapshot_id(manifest(more))}", manifest(more)).data[
            "missingBytes"
        ]
        == 4
    )
    assert raw(owner, f"/code/snapshots/{key}", said).data["finished"] is True


def test_an_interrupted_upload_resumes(owner: Api) -> None:
    said = manifest(TREE)
    key = snapshot.compute_snapshot_id(said)
    raw(owner, f"/code/snapshots/{key}", said)
    torn = raw(owner, f"/code/snapshots/{key}/blobs", framed(TREE["train.py"], TREE["data.bin"])[:-2])
    assert torn.error == "SNAPSHOT_BLOB_DIFFERS"
    assert owner.post(f"/code/snapshots/{key}/finish", {"projectId": "project-one"}).error == "SNAPSHOT_INCOMPLETE"
    left = raw(owner, f"/code/snapshots/{key}", said).data["missing"]
    assert hashlib.sha256(TREE["train.py"]).hexdigest() not in left
    assert len(left) == 2
    assert owner.get("/code/snapshots").data["items"] == [], "what is not whole is not there"
    assert upload_snapshot(owner, TREE) == key
    assert [item["id"] for item in owner.get("/code/snapshots").data["items"]] == [key]


def test_content_with_a_wrong_hash_is_refused(owner: Api) -> None:
    said = manifest(TREE)
    key = snapshot.compute_snapshot_id(said)
    assert raw(owner, f"/code/snapshots/{'0' * 64}", said).error == "SNAPSHOT_DIFFERS"
    raw(owner, f"/code/snapshots/{key}", said)
    lie = framed(TREE["train.py"]).replace(b"one", b"two")
    assert raw(owner, f"/code/snapshots/{key}/blobs", lie).error == "SNAPSHOT_BLOB_DIFFERS"
    assert raw(owner, f"/code/snapshots/{key}/blobs", framed(b"a stranger")).error == "SNAPSHOT_BLOB_UNKNOWN"
    assert raw(owner, f"/code/snapshots/{key}/blobs", b"nonsense").error == "SNAPSHOT_BLOB_UNKNOWN"


@pytest.mark.parametrize(
    ("path", "code"),
    [("../x", "SNAPSHOT_PATH_REFUSED"), ("/etc/x", "SNAPSHOT_PATH_REFUSED"), ("a//b", "SNAPSHOT_PATH_REFUSED"),
     ("a\nb", "SNAPSHOT_PATH_REFUSED"), ("lib", "SNAPSHOT_PATH_TWICE"), ("x" * 300, "SNAPSHOT_PATH_REFUSED")],
)  # fmt: skip
def test_paths_outside_the_tree_are_refused(owner: Api, path: str, code: str) -> None:
    said = manifest({**TREE, path: b"x"})
    assert raw(owner, f"/code/snapshots/{snapshot.compute_snapshot_id(said)}", said).error == code


@pytest.mark.parametrize("link", ["/etc/passwd", "../../x", "lib/../../x", ""])
def test_links_outside_the_tree_are_refused(owner: Api, link: str) -> None:
    said = manifest(TREE, SnapshotFile("lib/way", link=link)) if link else b'{"version":1,"files":[{"path":"x"}]}'
    answer = raw(owner, f"/code/snapshots/{snapshot.compute_snapshot_id(said)}", said)
    assert answer.error in ("SNAPSHOT_LINK_LEAVES", "SNAPSHOT_MALFORMED")


def test_too_large_code_is_refused_and_names_the_largest_files(owner: Api, settings: Any) -> None:
    settings.CODE_MAX_FILES = 3
    said = manifest(TREE)
    assert raw(owner, f"/code/snapshots/{snapshot.compute_snapshot_id(said)}", said).error == "SNAPSHOT_TOO_MANY_FILES"
    settings.CODE_MAX_FILES, settings.CODE_MAX_MB = 100, 0
    answer = raw(owner, f"/code/snapshots/{snapshot.compute_snapshot_id(said)}", said)
    assert (answer.status, answer.error) == (413, "SNAPSHOT_TOO_LARGE")
    assert "train.py" in answer.body["message"]
    settings.CODE_MAX_FILE_MB = -32
    assert raw(owner, f"/code/snapshots/{snapshot.compute_snapshot_id(said)}/blobs", said).error == "BODY_TOO_LARGE"


def test_a_snapshots_tree_files_archive_and_manifest_can_be_read(owner: Api, viewer: Api) -> None:
    key = upload_snapshot(owner, TREE, SnapshotFile("run.py", link="train.py"))
    items = viewer.get(f"/code/snapshots/{key[:10]}/tree").data["items"]
    assert [(one["name"], one["kind"]) for one in items] == [
        ("lib", "folder"), ("data.bin", "file"), ("run.py", "link"), ("same.py", "file"), ("train.py", "file")
    ]  # fmt: skip
    assert [one["path"] for one in viewer.get(f"/code/snapshots/{key}/tree?path=lib").data["items"]] == ["lib/model.py"]
    assert viewer.get(f"/code/snapshots/{key}/file?path=train.py").data["text"] == "print('one')\n"
    assert viewer.get(f"/code/snapshots/{key}/file?path=data.bin").data["text"] is None
    assert viewer.get(f"/code/snapshots/{key}/file?path=absent").status == 404
    sent = viewer.client.get(
        f"{BASE}/code/snapshots/{key}/archive", headers={"Authorization": f"Bearer {viewer.token}"}
    )
    with tarfile.open(fileobj=io.BytesIO(b"".join(sent.streaming_content))) as tar:
        assert tar.extractfile("lib/model.py").read() == b"SIZE = 1\n"
        assert tar.getmember("run.py").linkname == "train.py"
    whole = viewer.client.get(
        f"{BASE}/code/snapshots/{key}/manifest", headers={"Authorization": f"Bearer {viewer.token}"}
    )
    assert snapshot.compute_snapshot_id(whole.content) == key


def test_two_snapshots_are_compared_line_by_line(owner: Api) -> None:
    before = upload_snapshot(owner, TREE)
    after = upload_snapshot(
        owner, {"train.py": b"print('two')\n", "lib/model.py": b"SIZE = 1\n", "data.bin": b"\0", "new": b"n"}
    )
    items = {one["path"]: one for one in owner.get(f"/code/snapshots/{after}/diff", before=before).data["items"]}
    assert {path: one["change"] for path, one in items.items()} == {
        "train.py": "changed", "data.bin": "changed", "same.py": "removed", "new": "added"
    }  # fmt: skip
    assert "-print('one')\n+print('two')\n" in items["train.py"]["diff"]
    assert items["data.bin"]["binary"] is True


def test_strangers_see_no_snapshot_even_with_its_hash(owner: Api, stranger: Api, viewer: Api) -> None:
    key = upload_snapshot(owner, TREE)
    for path in ("", "/tree", "/file?path=train.py", "/manifest", "/archive", "/patch", f"/diff?before={key}"):
        assert stranger.get(f"/code/snapshots/{key}{path}").status == 404, path
    assert stranger.get("/code/snapshots").data["items"] == []
    said = manifest(TREE)
    theirs = raw(stranger, f"/code/snapshots/{key}", said, "project-two").data
    assert len(theirs["missing"]) == 3, "they have to send what they say they have"
    finished = stranger.post(f"/code/snapshots/{key}/finish", {"projectId": "project-two"})
    assert finished.error == "SNAPSHOT_INCOMPLETE"
    assert stranger.get(f"/code/snapshots/{key}").status == 404
    assert raw(stranger, f"/code/snapshots/{key}", said).status == 404
    assert raw(viewer, f"/code/snapshots/{key}", said).error == "FORBIDDEN"
    upload_snapshot(stranger, TREE, project="project-two")
    assert len(list((store.get_root() / "blobs").glob("*/*"))) == 3, "kept once"
    assert Blob.objects.count() == 6


def task(**more: Any) -> dict[str, Any]:
    return {"taskName": "t", "datasetId": None, "datasetVersionId": None, "modelId": None,
            "environmentIds": ["env-001"], "entrypoint": {"script": "train.py"}, **more}  # fmt: skip


def test_a_task_names_the_snapshot_and_a_script_in_it(owner: Api, environments: Any) -> None:
    key = upload_snapshot(owner, TREE)
    shown = owner.post("/training-tasks/preview", task(code={"snapshot": key[:16]})).data
    assert shown["problems"] == []
    node = next(one for one in shown["artifacts"] if one["kind"] == "node")
    assert key in node["content"]
    made = owner.post("/training-tasks", task(code={"snapshot": key[:16]}))
    assert made.status == 201, made.body
    absent = owner.post("/training-tasks", task(code={"snapshot": key}, entrypoint={"script": "trian.py"}))
    assert absent.problems == {"entrypoint.script": "ENTRYPOINT_NOT_IN_CODE"}
    unknown = owner.post("/training-tasks", task(code={"snapshot": "0" * 64}))
    assert unknown.problems["code.snapshot"] == "SNAPSHOT_UNKNOWN"
    two = owner.post(
        "/training-tasks", task(code={"environment": "master", "git": {"url": "https://example.org/x.git"}})
    )
    assert two.problems["code"] == "CODE_ONE_SOURCE"
    wanted = owner.post("/training-tasks", task(code={"snapshot": key, "requirements": "other.txt"}))
    assert wanted.problems == {"code.requirements": "REQUIREMENTS_NOT_IN_CODE"}
    elsewhere = owner.post("/training-tasks", task(code={"environment": "master"}))
    assert elsewhere.problems == {"code.environment": "CODE_ENVIRONMENT_UNREACHABLE"}, "nobody made it here"
    copy = owner.post(f"/training-tasks/{made.data['taskId']}/clone").data["request"]
    assert copy["code"] == {"snapshot": key, "requirements": "auto"}


MORE = {
    "pkg/__init__.py": b"",
    "pkg/train.py": b"print('one')\n",
    "start": b"#!/usr/bin/env bash\npython train.py\n",
    "launch.py": b"import subprocess\n\nsubprocess.call(['torchrun', 'train.py'])\n",
}


@pytest.mark.parametrize(
    ("entrypoint", "problems", "warnings"),
    [
        ({"module": "pkg.train", "args": ["--epochs", "3"]}, {}, set()),
        ({"module": "pkg.trian"}, {"entrypoint.module": "ENTRYPOINT_NOT_IN_CODE"}, set()),
        ({"module": "lightning"}, {}, {"ENTRYPOINT_MODULE_NOT_IN_CODE"}),
        ({"module": 5}, {"entrypoint.module": "WRONG_TYPE"}, set()),
        ({"script": "train.py", "module": "pkg.train"}, {"entrypoint.script": "ENTRYPOINT_ONE"}, set()),
        ({}, {"entrypoint.script": "ENTRYPOINT_ONE"}, set()),
        ({"command": ["bash", "run.sh"], "processes": "node"}, {}, set()),
        ({"command": ["bash", "start.sh"]}, {"entrypoint.command": "ENTRYPOINT_NOT_IN_CODE"}, set()),
        ({"command": ["torchrun", "train.py"]}, {}, {"SCRIPT_STARTS_RANKS"}),
        ({"script": "launch.py", "processes": "node"}, {}, set()),
        ({"script": "train.py", "processes": "host"}, {"entrypoint.processes": "FIELD_CHOICE"}, set()),
        ({"script": "start"}, {"entrypoint.script": "ENTRYPOINT_NOT_PYTHON"}, set()),
        ({"script": "run.sh"}, {"entrypoint.script": "ENTRYPOINT_NOT_PYTHON"}, set()),
        ({"script": "launch.py"}, {}, {"SCRIPT_STARTS_RANKS"}),
        ({"script": "train.py", "args": ["--out=$FERMI_OUTPUT_DIR"]}, {}, {"VALUE_NOT_EXPANDED"}),
        ({"script": "train.py", "args": ["--out={output_dir}"]}, {}, set()),
    ],
)
def test_the_entry_of_a_task_is_checked_in_its_snapshot(
    owner: Api, environments: Any, entrypoint: Any, problems: dict[str, str], warnings: set[str]
) -> None:
    key = upload_snapshot(owner, {**TREE, **MORE, "run.sh": b"python train.py\n"})
    asked = task(code={"snapshot": key}, entrypoint=entrypoint)
    shown = owner.post("/training-tasks/preview", asked).data
    told = {one["field"]: one["error"] for one in shown["problems"]}
    assert {field: code for field, code in told.items() if field.startswith("entrypoint")} == problems
    ours = {"ENTRYPOINT_MODULE_NOT_IN_CODE", "SCRIPT_STARTS_RANKS", "VALUE_NOT_EXPANDED"}
    assert {one["code"] for one in shown["warnings"]} & ours == warnings
    made = owner.post("/training-tasks", asked)
    assert made.status == (400 if problems else 201), made.body
    if "module" in entrypoint and not problems:
        node = next(one for one in shown["artifacts"] if one["kind"] == "node")
        assert f'"-m", "{entrypoint["module"]}"' in " ".join(node["content"].split())


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    for words in (["init", "-q", "-b", "main", str(folder)],):
        subprocess.run(["git", *words], check=True)
    (folder / "train.py").write_text("print('git')\n")
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", str(folder), "add", "."], check=True)
    subprocess.run(["git", "-C", str(folder), *who, "commit", "-qm", "one"], check=True)
    return folder


def commit(repository: Path, content: str) -> str:
    (repository / "train.py").write_text(content)
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", str(repository), *who, "commit", "-qam", "next"], check=True)
    said = subprocess.run(["git", "-C", str(repository), "rev-parse", "HEAD"], capture_output=True, text=True)
    return said.stdout.strip()


def serve(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real git from a real repository; only that it lies in a folder is let through."""
    monkeypatch.setattr(git, "_resolve_address", lambda parts: "192.0.2.1")
    before = git._GitCommand.__init__

    def local(self: Any, *given: Any) -> None:
        before(self, *given)
        self.options += ["-c", "protocol.file.allow=always", "-c", f"url.{repository}.insteadOf=https://example.org/x"]

    monkeypatch.setattr(git._GitCommand, "__init__", local)


@pytest.mark.parametrize(
    ("url", "code"),
    [("file:///etc", "GIT_URL_REFUSED"), ("http://example.org/x", "GIT_URL_REFUSED"), ("/tmp/x", "GIT_URL_REFUSED"),
     ("ext::sh -c id", "GIT_URL_REFUSED"), ("https://u:p@example.org/x", "GIT_URL_REFUSED"),
     ("https://127.0.0.1/x", "GIT_HOST_REFUSED"), ("https://169.254.169.254/x", "GIT_HOST_REFUSED"),
     ("ssh://-oProxyCommand=id/x", "GIT_URL_REFUSED")],
)  # fmt: skip
def test_code_is_not_fetched_from_local_addresses(owner: Api, url: str, code: str) -> None:
    answer = owner.post("/code/fetches", {"projectId": "project-one", "git": {"url": url}})
    assert answer.problems["git.url"] == code


def test_a_hostname_that_resolves_to_a_local_address_is_refused(owner: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked_up(*_: Any, **__: Any) -> list[Any]:
        return [(2, 1, 6, "", ("10.0.0.7", 443))]

    monkeypatch.setattr(git.socket, "getaddrinfo", looked_up)
    made = owner.post("/code/fetches", {"projectId": "project-one", "git": {"url": "https://inside.example.org/x"}})
    code_fetch.run_fetch(made.data["id"])
    found = owner.get(f"/code/fetches/{made.data['id']}").data
    assert (found["status"], found["error"]["code"]) == ("failed", "GIT_HOST_REFUSED")


def test_a_revision_becomes_a_snapshot_with_its_commit(
    owner: Api, stranger: Api, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(repository, monkeypatch)
    asked = {"url": "https://example.org/x", "revision": "main"}
    made = owner.post("/code/fetches", {"projectId": "project-one", "git": asked}).data
    assert code_fetch.list_due_fetches() == [made["id"]]
    assert code_fetch.run_fetch(made["id"])
    assert not code_fetch.run_fetch(made["id"]), "once"
    found = owner.get(f"/code/fetches/{made['id']}").data
    assert found["status"] == "ready", found
    origin = owner.get(f"/code/snapshots/{found['snapshotId']}").data["origin"]
    commit = subprocess.run(["git", "-C", str(repository), "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    assert (origin["kind"], origin["branch"], origin["commit"]) == ("git", "main", commit.strip())
    assert owner.get(f"/code/snapshots/{found['snapshotId']}/file?path=train.py").data["text"] == "print('git')\n"
    assert stranger.get(f"/code/fetches/{made['id']}").status == 404
    absent = owner.post("/code/fetches", {"projectId": "project-one", "git": {**asked, "revision": "nope"}}).data
    code_fetch.run_fetch(absent["id"])
    assert owner.get(f"/code/fetches/{absent['id']}").data["error"]["code"] == "GIT_REVISION_UNKNOWN"
    assert Fetch.objects.filter(due_at=None).count() == 2
    assert Snapshot.objects.count() == 1


def begun(task_id: str) -> Task:
    """As a pass over the task leaves it once its code has been fetched."""
    row = Task.objects.get(pk=task_id)
    held = row.spec["code"] or {"source": {}}
    fetch = held["source"].get("fetch")
    if fetch and not held["snapshot"]:
        assert code_fetch.run_fetch(fetch)
        job, _ = code.resolve_fetch(JobSpec.from_json(row.spec))
        assert job is not None
        Task.objects.filter(pk=task_id).update(spec=job.to_json())
    return Task.objects.get(pk=task_id)


def failed(task_id: str) -> Task:
    row = begun(task_id)
    Task.objects.filter(pk=task_id).update(state=TaskState.FAILED, due_at=None, ended_at=now())
    return row


def retried(api: Api, task_id: str, **body: Any) -> Task:
    answer = api.post(f"/training-tasks/{task_id}/retry", body)
    assert answer.status == 201, answer.body
    return failed(answer.data["taskId"])


def test_a_retry_after_a_push_runs_the_pushed_commit(
    owner: Api, viewer: Api, environments: Any, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(repository, monkeypatch)
    asked = {"git": {"url": "https://example.org/x", "revision": "main"}}
    first = failed(owner.post("/training-tasks", task(code=asked)).data["taskId"])
    known = f"/training-tasks/{first.pk}/code/source"
    look = owner.get(known).data
    assert (look["kind"], look["url"], look["revision"]) == ("git", "https://example.org/x", "main")
    assert (look["changed"], look["why"]) == (False, None)
    assert viewer.get(known).error == "FORBIDDEN", "it makes the platform ask somebody"
    same = retried(owner, first.pk)
    assert same.spec["code"]["snapshot"] == first.spec["code"]["snapshot"]

    pushed = commit(repository, "print('mended')\n")
    assert owner.get(known).data["changed"] is True
    assert owner.get(f"/training-tasks/{same.pk}/code/source").data["changed"] is True, "a retry's source is known, too"
    kept = retried(owner, same.pk, code="snapshot")
    assert kept.spec["code"]["snapshot"] == first.spec["code"]["snapshot"]
    anew = retried(owner, kept.pk)
    assert anew.spec["code"]["origin"]["commit"] == pushed
    assert anew.request["code"]["git"] == {"url": "https://example.org/x", "revision": "main"}
    copy = owner.post(f"/training-tasks/{kept.pk}/clone").data["request"]["code"]
    assert copy == {"snapshot": first.spec["code"]["snapshot"], "requirements": "auto",
                    "git": {"url": "https://example.org/x", "revision": "main"}}  # fmt: skip


def test_a_retry_does_not_wait_for_a_git_server_that_is_down(
    owner: Api, environments: Any, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(repository, monkeypatch)
    first = failed(owner.post("/training-tasks", task(code={"git": {"url": "https://example.org/x"}})).data["taskId"])
    repository.rename(repository.with_name("away"))
    look = owner.get(f"/training-tasks/{first.pk}/code/source").data
    assert look["changed"] is None
    assert look["why"]["code"] == "GIT_REPOSITORY_UNKNOWN", look
    assert retried(owner, first.pk).spec["code"]["snapshot"] == first.spec["code"]["snapshot"]


@pytest.mark.parametrize("kind", ["branch", "tag with a message", "commit", "HEAD"])
def test_the_commit_of_a_revision_is_resolved_as_a_fetch_does(
    repository: Path, monkeypatch: pytest.MonkeyPatch, settings: Any, kind: str
) -> None:
    serve(repository, monkeypatch)
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", str(repository), *who, "tag", "-am", "one", "v1"], check=True)
    tagged = commit(repository, "print('two')\n")
    revision = {"branch": "main", "tag with a message": "v1", "commit": tagged, "HEAD": "HEAD"}[kind]
    with git.fetch_revision("https://example.org/x", revision, "") as fetched:
        assert git.find_commit("https://example.org/x", revision, "", 20) == fetched.commit
    for revision in ("main~1", tagged[:7], tagged[:39]):
        assert git.find_commit("https://example.org/x", revision, "", 20) is None, "only a fetch can tell"
    with pytest.raises(FetchError, match="GIT_REVISION_UNKNOWN"):
        git.find_commit("https://example.org/x", "no-branch", "", 20)


def test_a_retry_of_uploaded_code_uploads_again_or_runs_the_same(owner: Api, environments: Any, data_dir: Path) -> None:
    key, other = upload_snapshot(owner, TREE), upload_snapshot(owner, {**TREE, "train.py": b"print('two')\n"})
    first = failed(owner.post("/training-tasks", task(code={"snapshot": key})).data["taskId"])
    look = owner.get(f"/training-tasks/{first.pk}/code/source").data
    assert (look["kind"], look["changed"], look["snapshotId"]) == ("upload", None, key)
    refused = owner.post(f"/training-tasks/{first.pk}/retry", {"code": "current"})
    assert (refused.status, refused.error) == (409, "CODE_SOURCE_UNKNOWN")
    assert retried(owner, first.pk).spec["code"]["snapshot"] == key
    assert retried(owner, first.pk, snapshot=other).spec["code"]["snapshot"] == other
    unknown = owner.post(f"/training-tasks/{first.pk}/retry", {"snapshot": "0" * 64})
    assert unknown.problems["code.snapshot"] == "SNAPSHOT_UNKNOWN"
    assert owner.post(f"/training-tasks/{first.pk}/retry", {"code": "newest"}).problems == {"code": "FIELD_CHOICE"}
    (data_dir / "workspace").mkdir()
    (data_dir / "workspace" / "train.py").write_text("print(1)\n")
    on_node = {"script": str(data_dir / "workspace" / "train.py")}
    bare = failed(owner.post("/training-tasks", task(entrypoint=on_node)).data["taskId"])
    assert owner.get(f"/training-tasks/{bare.pk}/code/source").data["kind"] == "node"
    assert owner.post(f"/training-tasks/{bare.pk}/retry", {"code": "current"}).status == 201, "it lies on the node"
    bare = failed(owner.post("/training-tasks", task()).data["taskId"])
    assert bare.spec["code"] is None
    assert retried(owner, bare.pk, snapshot=other).spec["code"]["snapshot"] == other


def test_a_retry_takes_code_from_the_same_environment(
    owner: Api, environments: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what its keeper tells, the e2e tests tell; here an id stands for it."""
    key, other = upload_snapshot(owner, TREE), upload_snapshot(owner, {**TREE, "train.py": b"print('two')\n"})
    said = {"snapshot": key, "environment": "master", "path": "mine"}
    config = {"enabled": True, "nodeIds": ["env-001", "env-002"], "masterNode": "env-001"}
    pair = task(code=said, environmentIds=[], distributedConfig=config)
    first = failed(owner.post("/training-tasks", pair).data["taskId"])
    source = f"/training-tasks/{first.pk}/code/source"
    assert owner.get(source).data["why"]["code"] == "CODE_ENVIRONMENT_UNREACHABLE", "nobody made it here"
    monkeypatch.setattr(from_environment, "read_snapshot_id", lambda project, source, seconds: other)
    look = owner.get(source).data
    assert (look["kind"], look["path"], look["changed"]) == ("environment", "mine", True)
    monkeypatch.setattr(from_environment, "check_environment", lambda *given: [])
    answer = owner.post(f"/training-tasks/{first.pk}/retry", {})
    anew = Task.objects.get(pk=answer.data["taskId"])
    assert (anew.spec["code"]["snapshot"], anew.spec["code"]["source"]["path"]) == ("", "mine")

    restart = f"/training-tasks/{first.pk}/restart"
    refused = owner.post(restart, {"leaveOut": ["env-001"], "code": "current"})
    assert (refused.status, refused.error) == (409, "CODE_SOURCE_LEFT_OUT")
    without = Task.objects.get(pk=owner.post(restart, {"leaveOut": ["env-001"]}).data["taskId"])
    assert (without.spec["code"]["snapshot"], without.spec["code"]["source"]) == (key, {})
    other_out = Task.objects.get(pk=owner.post(restart, {"leaveOut": ["env-002"]}).data["taskId"])
    assert other_out.spec["code"]["source"]["environment"] == "env-001"


def test_admin_and_api_retry_the_same_code(
    owner: Api, admin: Api, environments: Any, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(repository, monkeypatch)
    first = failed(owner.post("/training-tasks", task(code={"git": {"url": "https://example.org/x"}})).data["taskId"])
    pushed = commit(repository, "print('mended')\n")
    operator = Client()
    assert admin.user
    assert owner.user
    operator.force_login(admin.user)
    chosen = {"action": "retry", "_selected_action": [first.pk]}
    operator.post(reverse("admin:training_task_changelist"), chosen)
    anew = begun(Task.objects.exclude(pk=first.pk).get().pk)
    assert anew.spec["code"]["origin"]["commit"] == pushed
    assert failed(going_on.restart_task(owner.user, first.pk).pk).spec["code"]["origin"]["commit"] == pushed


def test_restart_without_a_node_is_offered_without_asking_a_git_server(
    owner: Api, environments: Any, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(repository, monkeypatch)
    config = {"enabled": True, "nodeIds": ["env-001", "env-002"], "masterNode": "env-001"}
    pair = task(code={"git": {"url": "https://example.org/x"}}, environmentIds=[], distributedConfig=config)
    first = failed(owner.post("/training-tasks", pair).data["taskId"])
    asked: list[Any] = []
    monkeypatch.setattr(code_fetch, "has_changed", lambda *given: asked.append(given))
    assert owner.user
    assert going_on.can_restart(owner.user, Task.objects.get(pk=first.pk), ["env-002"])
    assert asked == []


def test_damaged_content_is_detected_before_a_node_gets_it(owner: Api) -> None:
    key = upload_snapshot(owner, TREE)
    store.get_blob_path(hashlib.sha256(TREE["train.py"]).hexdigest()).write_bytes(b"print('bad')\n")
    with pytest.raises(store.ContentMissingError):
        store.ensure_archive(key)
    assert owner.get(f"/code/snapshots/{key}/archive").error == "CODE_LOST"


def aged(folder: Path, days: float) -> None:
    moment = time.time() - days * 86_400
    for path in folder.rglob("*"):
        os.utime(path, (moment, moment))


def test_unreferenced_snapshots_are_deleted_after_their_retention(owner: Api, environments: Any) -> None:
    kept, lone = upload_snapshot(owner, TREE), upload_snapshot(owner, {**TREE, "train.py": b"print('lone')\n"})
    broken = manifest({"half.py": b"half\n"})
    raw(owner, f"/code/snapshots/{snapshot.compute_snapshot_id(broken)}", broken)
    assert owner.post("/training-tasks", task(code={"snapshot": kept})).status == 201
    for key in (kept, lone):
        store.ensure_archive(key)
    Snapshot.objects.update(used_at=now() - timedelta(days=29))
    aged(store.get_root(), 29)
    code.delete_unused_snapshots()
    assert set(Snapshot.objects.values_list("digest", flat=True)) == {kept, lone}, "that broke off long ago"
    assert not store.get_archive_folder(lone).exists(), "nobody is about to read it"
    Snapshot.objects.update(used_at=now() - timedelta(days=31))
    upload_snapshot(owner, {"fresh.py": b"fresh\n"})
    code.delete_unused_snapshots()
    assert Snapshot.objects.filter(digest=kept).exists()
    assert owner.get(f"/code/snapshots/{lone}").status == 404
    assert not store.get_blob_path(hashlib.sha256(b"print('lone')\n").hexdigest()).exists()
    assert store.get_blob_path(hashlib.sha256(b"fresh\n").hexdigest()).exists()
    assert {one.sha256 for one in store.list_files(kept)} <= set(Blob.objects.values_list("sha256", flat=True))
    assert (store.ensure_archive(kept) / snapshot.ARCHIVE_NAME).exists()
    again = upload_snapshot(owner, {**TREE, "train.py": b"print('lone')\n"})
    assert again == lone, "it may be sent anew"


def test_incomplete_snapshots_per_user_are_limited(owner: Api, colleague: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_SNAPSHOTS", 1)
    first, second = manifest(TREE), manifest({"other.py": b"2"})
    assert raw(owner, f"/code/snapshots/{snapshot.compute_snapshot_id(first)}", first).status == 200
    assert raw(owner, f"/code/snapshots/{snapshot.compute_snapshot_id(second)}", second).error == "SNAPSHOTS_UNFINISHED"
    assert raw(owner, f"/code/snapshots/{snapshot.compute_snapshot_id(first)}", first).status == 200  # the same again
    assert raw(colleague, f"/code/snapshots/{snapshot.compute_snapshot_id(second)}", second).status == 200


def test_the_preview_shows_the_words_of_rank_0_and_offers_missing_arguments(owner: Api, environments: Any) -> None:
    script = b"p.add_argument('--local_rank', type=int)\n"
    key = upload_snapshot(owner, {"train.py": script})
    entrypoint = {"script": "train.py", "args": ["--r={rank}/{world_size}", "--url={dist_url}", "{{rank}}"]}
    asked = task(code={"snapshot": key}, entrypoint=entrypoint, env={"LOG": "{rank}.log"})
    shown = owner.post("/training-tasks/preview", asked).data
    assert shown["missingArguments"] == ["--local_rank={local_rank}"]
    url = f"tcp://{shown['ranks'][0]['env']['MASTER_ADDR']}:{shown['ranks'][0]['env']['MASTER_PORT']}"
    assert shown["command"][-3:] == [f"--r=0/{shown['worldSize']}", f"--url={url}", "{rank}"]
    assert shown["ranks"][-1]["env"]["LOG"] == f"{shown['worldSize'] - 1}.log"
    asked["entrypoint"] = {**entrypoint, "args": ["--local_rank={local_rank}"]}
    assert owner.post("/training-tasks/preview", asked).data["missingArguments"] == []


def test_a_cluster_without_a_way_out_keeps_libraries_offline(owner: Api, environments: Any) -> None:
    key = upload_snapshot(owner, TREE)
    Cluster.objects.update(connection={"offline": True})
    shown = owner.post("/training-tasks/preview", task(code={"snapshot": key}, env={"HF_HUB_OFFLINE": "0"})).data
    env = shown["ranks"][0]["env"]
    assert (env["HF_HUB_OFFLINE"], env["TRANSFORMERS_OFFLINE"]) == ("0", "1")


def test_the_preview_proposes_how_the_script_resumes_until_a_rule_is_given(owner: Api, environments: Any) -> None:
    key = upload_snapshot(owner, {"train.py": b"p.add_argument('--resume-from', type=str)\n"})
    asked = task(code={"snapshot": key}, entrypoint={"script": "train.py"})
    proposed = owner.post("/training-tasks/preview", asked).data["resume"]
    assert (proposed["args"], proposed["env"], proposed["itself"]) == (["--resume-from", "{path}"], {}, False)
    assert "--resume-from" in proposed["message"]
    rule = {name: proposed[name] for name in ("args", "env", "itself")}
    asked["entrypoint"] = {"script": "train.py", "resume": rule}
    shown = owner.post("/training-tasks/preview", asked).data
    assert shown["resume"] is None
    assert "--resume-from" not in shown["command"], "the first attempt does not resume"
    asked["entrypoint"]["resume"] = {}
    problems = owner.post("/training-tasks/preview", asked).data["problems"]
    assert [one["field"] for one in problems if one["field"].startswith("entrypoint")] == ["entrypoint.resume"]
