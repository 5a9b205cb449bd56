"""Files of a project, over the same store that ranks read: a folder, and once more object storage."""

import hashlib
import io
import json
import logging
import os
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import AuditEvent
from apps.catalog import preparation
from apps.catalog.models import DatasetVersion
from apps.common import disks
from apps.common.clock import now
from apps.files import store as stores
from apps.files.models import File, PendingOperation, Upload
from apps.files.services import store_sync, uploads
from apps.scheduling.models import Limits
from tests.api.conftest import BASE, Answer, Api

HERE = pytest.mark.parametrize("store", ["folder"], indirect=True)
FILES, UPLOADS = "/projects/project-one/files", "/projects/project-one/file-uploads"


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """Moto's server on loopback: see docs/decisions/0062 for what it does not check."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    boto3.client("s3", endpoint_url=address, aws_access_key_id="testing", aws_secret_access_key="testing",
                 region_name="us-east-1").create_bucket(Bucket="bucket")  # fmt: skip
    yield address
    server.stop()


@pytest.fixture(params=["folder", "s3"], autouse=True)
def store(request: Any, settings: Any, tmp_path: Path) -> Any:
    settings.DATA_DIR = tmp_path / "data"
    settings.DATA_DIR.mkdir()
    if request.param == "s3":
        settings.FILES_ENDPOINT = request.getfixturevalue("bucket")
        settings.FILES_KEY = settings.FILES_SECRET = "testing"
        settings.FILES = f"s3://bucket/{tmp_path.name}"
    return stores.get_store()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def send(api: Api, upload: str, offset: int, data: bytes) -> Answer:
    response = api.client.generic(
        "PUT", f"{BASE}{UPLOADS}/{upload}/content?offset={offset}", data, content_type="application/octet-stream",
        headers={"Authorization": f"Bearer {api.token}"},
    )  # fmt: skip
    return Answer(response.status_code, json.loads(response.content), dict(response.headers))


def begin(api: Api, path: str, data: bytes, **more: Any) -> Answer:
    return api.post(UPLOADS, {"path": path, "sizeBytes": len(data), "sha256": sha(data), **more})


def upload_file(api: Api, path: str, data: bytes = b"some text\n", **more: Any) -> Answer:
    upload = begin(api, path, data, **more).data
    if upload["state"] != "done":
        assert send(api, upload["id"], 0, data).data["offset"] == len(data)
        answer = api.post(f"{UPLOADS}/{upload['id']}/finish")
        assert answer.data["state"] == "done", answer.body
        return answer
    return Answer(200, {"data": upload})


def get(api: Api, path: str, where: str = "content", **headers: str) -> Any:
    answer = api.client.get(
        f"{BASE}{FILES}/{where}",
        query_params={"path": path},
        headers={"Authorization": f"Bearer {api.token}", **headers},
    )
    answer.body = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return answer


def names(api: Api, path: str = "", **query: Any) -> list[str]:
    return [item["path"] for item in listed(api, path, **query).data["items"]]


def listed(api: Api, path: str, **query: Any) -> Answer:
    return api._send("GET", FILES, query={"path": path, **query})


def test_a_file_is_uploaded_listed_and_downloaded_with_its_hash(colleague: Api, viewer: Api) -> None:
    data = os.urandom(300_000)
    upload_file(colleague, "texts/corpus/a.bin", data)
    [folder] = viewer.get(FILES).data["items"]
    assert (folder["path"], folder["kind"], folder["sizeBytes"]) == ("texts", "folder", None)
    [item] = listed(viewer, "/texts/corpus/").data["items"]
    assert (item["path"], item["sizeBytes"], item["sha256"], item["by"]) == (
        "texts/corpus/a.bin", len(data), sha(data), "colleague",
    )  # fmt: skip
    answer = get(viewer, "texts/corpus/a.bin")
    assert (answer.status_code, answer.body, answer["ETag"]) == (200, data, f'"{sha(data)}"')
    assert answer["Content-Disposition"].startswith("attachment;")
    assert names(viewer, search="A.B") == ["texts/corpus/a.bin"]
    assert viewer.get(f"{FILES}/use").data["usedBytes"] == len(data)


@HERE
@pytest.mark.parametrize(
    ("asked", "status", "part"),
    [
        ("bytes=0-3", 206, slice(0, 4)),
        ("bytes=90-", 206, slice(90, None)),
        ("bytes=-5", 206, slice(95, None)),
        ("bytes=50-1000", 206, slice(50, 100)),
        ("bytes=0-99", 200, slice(None)),
        ("lines=1-2", 200, slice(None)),
        ("bytes=0-1,5-6", 200, slice(None)),
    ],
)
def test_a_range_of_a_file_is_what_comes(colleague: Api, asked: str, status: int, part: slice) -> None:
    data = bytes(range(100))
    upload_file(colleague, "a", data)
    answer = get(colleague, "a", Range=asked)
    assert (answer.status_code, answer.body) == (status, data[part])
    assert answer["Content-Length"] == str(len(data[part]))


def test_conditional_requests_answer_304(colleague: Api) -> None:
    upload_file(colleague, "a", b"x" * 10)
    tag = get(colleague, "a")["ETag"]
    assert get(colleague, "a", **{"If-None-Match": f'"other", {tag}'}).status_code == 304
    assert get(colleague, "a", Range="bytes=2-3", **{"If-Range": '"other"'}).body == b"x" * 10
    assert get(colleague, "a", Range="bytes=2-3", **{"If-Range": tag}).body == b"xx"
    answer = get(colleague, "a", Range="bytes=10-")
    assert (answer.status_code, json.loads(answer.body)["error"]) == (416, "RANGE_OUTSIDE")


def test_parts_may_come_in_any_number_and_repeatedly(colleague: Api) -> None:
    data = os.urandom(1000)
    upload = begin(colleague, "a", data).data["id"]
    assert send(colleague, upload, 0, data[:400]).data["offset"] == 400
    assert send(colleague, upload, 0, data[:400]).data["offset"] == 400
    assert send(colleague, upload, 300, data[300:700]).data["offset"] == 700
    gap = send(colleague, upload, 800, data[800:])
    assert (gap.status, gap.problems) == (409, {"offset": "UPLOAD_GAP"})
    assert colleague.post(f"{UPLOADS}/{upload}/finish").error == "UPLOAD_INCOMPLETE"
    assert send(colleague, upload, 700, data[700:] + b"more").error == "UPLOAD_TOO_LONG"
    assert names(colleague) == []
    assert send(colleague, upload, 700, data[700:]).data["offset"] == 1000
    assert colleague.post(f"{UPLOADS}/{upload}/finish").data["state"] == "done"
    assert colleague.post(f"{UPLOADS}/{upload}/finish").data["state"] == "done"
    assert get(colleague, "a").body == data


def test_an_interrupted_upload_resumes_at_its_offset(colleague: Api, owner: Api) -> None:
    data = os.urandom(1000)
    first = begin(colleague, "a", data).data
    send(colleague, first["id"], 0, data[:600])
    again = begin(colleague, "a", data).data
    assert (again["id"], again["offset"]) == (first["id"], 600)
    assert begin(owner, "a", data).data["id"] != first["id"]
    assert begin(colleague, "a", data[:-1]).data["id"] != first["id"]


def test_existing_content_is_not_sent_again(colleague: Api) -> None:
    upload_file(colleague, "a", b"same")
    again = begin(colleague, "a", b"same").data
    assert (again["id"], again["state"], again["offset"]) == ("", "done", 4)
    assert Upload.objects.filter(state="receiving").count() == 0


@pytest.mark.database
def test_a_file_with_a_wrong_hash_is_refused(colleague: Api) -> None:
    upload = begin(colleague, "a", b"right").data["id"]
    send(colleague, upload, 0, b"wrong")
    failed = colleague.post(f"{UPLOADS}/{upload}/finish").data
    assert (failed["state"], failed["error"]["code"]) == ("failed", "UPLOAD_CORRUPT")
    assert names(colleague) == []
    assert not list(uploads.get_staged_path("x").parent.iterdir())
    upload_file(colleague, "a", b"right")


def test_an_empty_file_can_be_stored(colleague: Api) -> None:
    upload_file(colleague, "empty", b"")
    assert get(colleague, "empty").body == b""


@HERE
@pytest.mark.parametrize(
    "path",
    [
        "../a",
        "a/../../b",
        "/etc/passwd",
        "a//b",
        "./a",
        "a/.",
        "a\\b",
        "a\nb",
        "x" * 256,
        "中" * 80 + "/中" * 200,
        " a",
        "a/",
    ],
    ids=range(12),
)
def test_paths_outside_the_project_are_refused(colleague: Api, path: str) -> None:
    answer = begin(colleague, path, b"x")
    assert (answer.status, answer.problems) == (400, {"path": "FILE_PATH_INVALID"})
    assert get(colleague, path).status_code == 400


def test_unicode_names_are_normalized(colleague: Api) -> None:
    upload_file(colleague, "cafe\u0301.txt", b"1")
    assert names(colleague) == ["caf\u00e9.txt"]
    assert get(colleague, "caf\u00e9.txt").body == b"1"


def test_a_file_is_replaced_only_with_overwrite(colleague: Api) -> None:
    upload_file(colleague, "a", b"old")
    assert begin(colleague, "a", b"new").problems == {"path": "FILE_EXISTS"}
    upload_file(colleague, "a", b"new", replace=True)
    assert get(colleague, "a").body == b"new"
    assert begin(colleague, "a/b", b"x").problems == {"path": "FILE_IN_THE_WAY"}


@pytest.mark.database
def test_files_and_folders_are_moved(colleague: Api, store: Any) -> None:
    for name in ("in/a", "in/deep/b", "in/deep/c"):
        upload_file(colleague, name, name.encode())
    assert colleague.post(f"{FILES}/move", {"path": "in", "to": "in/deep/x"}).error == "FILE_INTO_ITSELF"
    assert colleague.post(f"{FILES}/move", {"path": "in/a", "to": "in/deep/b"}).error == "FILE_EXISTS"
    assert colleague.post(f"{FILES}/move", {"path": "in/deep", "to": "out/there"}).data["path"] == "out/there"
    assert names(colleague, "out/there") == ["out/there/b", "out/there/c"]
    assert names(colleague, "in") == ["in/a"]
    assert get(colleague, "out/there/b").body == b"in/deep/b"
    assert store.size("project-one/in/deep/b") is None
    colleague.post(f"{FILES}/move", {"path": "in/a", "to": "b"})
    assert get(colleague, "b").body == b"in/a"


@pytest.mark.database
def test_a_folder_that_is_not_empty_is_deleted_only_recursively(colleague: Api, store: Any) -> None:
    colleague.post(f"{FILES}/folders", {"path": "one/two"})
    upload_file(colleague, "one/two/a")
    assert names(colleague) == ["one"]
    assert colleague._send("DELETE", FILES, query={"path": "one"}).problems == {"path": "FOLDER_NOT_EMPTY"}
    assert colleague._send("DELETE", FILES, query={"path": "one", "recursive": "true"}).status == 200
    assert names(colleague) == []
    assert store.size("project-one/one/two/a") is None
    assert not File.objects.exists()


@pytest.mark.parametrize(("form", "where"), [("zip", "one"), ("tar", "one"), ("tar", "")])
def test_a_folder_is_downloaded_as_one_archive(colleague: Api, form: str, where: str) -> None:
    contents = {"one/a.txt": b"a" * 700, "one/two/b": b"", "one/two/文件": os.urandom(2000)}
    for name, data in contents.items():
        upload_file(colleague, name, data)
    answer = colleague.client.get(
        f"{BASE}{FILES}/archive", query_params={"path": where, "format": form},
        headers={"Authorization": f"Bearer {colleague.token}"},
    )  # fmt: skip
    whole = io.BytesIO(b"".join(answer.streaming_content))
    if form == "zip":
        with zipfile.ZipFile(whole) as archive:
            assert archive.testzip() is None
            found = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    else:
        with tarfile.open(fileobj=whole) as archive:
            found = {one.name: archive.extractfile(one).read() for one in archive if one.isfile()}
    assert found == contents


def test_viewers_read_members_write_their_own_maintainers_write_all(
    viewer: Api, colleague: Api, owner: Api, stranger: Api, anonymous: Api
) -> None:
    upload_file(owner, "theirs")
    upload_file(colleague, "mine")
    assert get(viewer, "mine").status_code == 200
    assert begin(viewer, "x", b"x").status == 403
    assert viewer.post(f"{FILES}/folders", {"path": "x"}).status == 403
    assert viewer._send("DELETE", FILES, query={"path": "mine"}).status == 403
    for answer in (
        colleague._send("DELETE", FILES, query={"path": "theirs"}),
        colleague.post(f"{FILES}/move", {"path": "theirs", "to": "x"}),
        begin(colleague, "theirs", b"other", replace=True),
    ):
        assert (answer.status, answer.error) == (403, "FILE_OF_ANOTHER")
    upload = begin(colleague, "b", b"12").data["id"]
    for who, status in ((stranger, 404), (anonymous, 401)):
        assert who.get(FILES).status == status
        assert who.get(f"{FILES}/use").status == status
        assert who.post(f"{FILES}/move", {"path": "mine", "to": "x"}).status == status
        assert who.get(f"{UPLOADS}/{upload}").status == status
        assert who.post(f"{UPLOADS}/{upload}/finish").status == status
    assert get(stranger, "mine").status_code == 404
    assert send(stranger, upload, 0, b"12").status == 404
    assert owner._send("DELETE", FILES, query={"path": "mine"}).status == 200
    done = list(AuditEvent.objects.filter(action__startswith="file.").values_list("action", "target"))
    assert done == [("file.put", "theirs"), ("file.put", "mine"), ("file.delete", "mine")]


def test_a_full_project_reports_usage_and_quota(colleague: Api, owner: Api, admin: Api) -> None:
    upload_file(owner, "a", b"x" * 600)
    limits = {"maxFileBytes": 1000}
    assert admin.put("/projects/project-one/limits", limits).data["maxFileBytes"] == 1000
    refused = begin(colleague, "b", b"x" * 401)
    assert (refused.status, refused.problems) == (409, {"sizeBytes": "FILES_FULL"})
    assert "600" in refused.body["message"]
    begin(colleague, "b", b"x" * 300)
    assert begin(colleague, "c", b"x" * 200).error == "FILES_FULL"  # what is under way counts
    assert begin(owner, "a", b"y" * 700, replace=True).status == 201  # what it replaces does not
    assert Limits.objects.get().max_file_bytes == 1000


@pytest.mark.database
def test_an_interrupted_operation_is_completed_by_the_sweep(colleague: Api, store: Any) -> None:
    for name in ("a", "b"):
        upload_file(colleague, name, name.encode())
    File.objects.filter(name="a").update(parent="c", name="a2", source="a", doing=PendingOperation.MOVE, due_at=now())
    File.objects.filter(name="b").update(doing=PendingOperation.DELETE, due_at=now())
    assert get(colleague, "c/a2").body == b"a"
    assert begin(colleague, "a", b"other").status == 201
    store_sync.apply_due()
    store_sync.apply_due()
    assert (store.size("project-one/a"), store.size("project-one/b"), store.size("project-one/c/a2")) == (None, None, 1)
    assert list(File.objects.filter(folder=False).values_list("doing", "source")) == [("", "")]


def test_an_upload_interrupted_while_it_was_moved_is_completed(
    colleague: Api, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each step of the way: killed before and after the content is in place."""
    upload_file(colleague, "a", b"old")
    for name, data in (("before", b"newer"), ("after", b"newest")):
        upload = begin(colleague, "a", data, replace=True).data["id"]
        send(colleague, upload, 0, data)
        inner = type(store).put

        def dies(self: Any, source: Path, key: str, name: str = name, inner: Any = inner) -> None:
            if name == "after":
                inner(self, source, key)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(type(store), "put", dies)
            with pytest.raises(KeyboardInterrupt):
                colleague.post(f"{UPLOADS}/{upload}/finish")
        uploads.check_due_uploads()
        assert Upload.objects.get(pk=upload).state == "checking"  # somebody seems to be at it
        Upload.objects.filter(pk=upload).update(due_at=now())
        uploads.check_due_uploads()
        assert colleague.get(f"{UPLOADS}/{upload}").data["state"] == "done"
        assert get(colleague, "a").body == data


@pytest.mark.database
def test_an_abandoned_upload_is_deleted_after_a_day(colleague: Api) -> None:
    upload = begin(colleague, "a", b"12345").data
    assert upload["expiresAt"] > upload["createdAt"]
    send(colleague, upload["id"], 0, b"123")
    uploads.delete_expired()
    assert uploads.get_staged_path(upload["id"]).exists()
    Upload.objects.update(touched_at=now() - timedelta(days=1, minutes=1))
    os.utime(uploads.get_staged_path(upload["id"]), (0, 0))
    uploads.delete_expired()
    assert not uploads.get_staged_path(upload["id"]).exists()
    assert colleague.get(f"{UPLOADS}/{upload['id']}").error == "UPLOAD_NOT_FOUND"
    assert AuditEvent.objects.get(action="file.upload-abandoned").target == "a"


def test_an_upload_can_be_cancelled(colleague: Api, viewer: Api) -> None:
    upload = begin(colleague, "a", b"12345").data["id"]
    assert viewer.get(UPLOADS).data["items"] == []
    assert colleague.get(UPLOADS).ids == [upload]
    assert viewer.delete(f"{UPLOADS}/{upload}").status == 404
    assert colleague.delete(f"{UPLOADS}/{upload}").status == 200
    assert colleague.get(UPLOADS).data["items"] == []


@pytest.mark.database
def test_lists_are_paged_with_folders_first(colleague: Api) -> None:
    for name in ("z", "a", "m"):
        upload_file(colleague, name, name.encode() * (3 if name == "a" else 1))
    colleague.post(f"{FILES}/folders", {"path": "late"})
    assert names(colleague, pageSize=2) == ["late", "a"]
    assert names(colleague, pageSize=2, page=2) == ["m", "z"]
    assert names(colleague, ordering="-sizeBytes")[:2] == ["late", "a"]
    assert listed(colleague, "nowhere").error == "FILE_NOT_FOUND"


@HERE
def test_links_and_special_files_in_the_store_are_not_followed(colleague: Api, settings: Any, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    upload_file(colleague, "one/a", b"right")
    upload_file(colleague, "b", b"right")
    upload_file(colleague, "c", b"right")
    top = settings.DATA_DIR / "files" / "project-one"
    (top / "one" / "a").unlink()
    (top / "one").rmdir()
    (top / "one").symlink_to(outside)
    (outside / "a").write_text("secret")
    (top / "b").unlink()
    (top / "b").symlink_to(outside / "secret")
    (top / "c").unlink()
    os.mkfifo(top / "c")
    for path in ("one/a", "b", "c"):
        answer = get(colleague, path)
        assert (answer.status_code, json.loads(answer.body)["error"]) == (404, "FILE_GONE")
    upload = begin(colleague, "one/new", b"x").data["id"]
    send(colleague, upload, 0, b"x")
    colleague.post(f"{UPLOADS}/{upload}/finish")
    assert not (outside / "new").exists()
    assert colleague._send("DELETE", FILES, query={"path": "b"}).status == 200
    assert (outside / "secret").read_text() == "secret"


def test_a_dataset_made_from_files_is_a_copy(owner: Api, colleague: Api, admin: Api) -> None:
    for name, text in (("a.txt", b"one two\n" * 200), ("more/b.txt", b"three\n" * 100)):
        assert upload_file(colleague, f"corpus/{name}", text)
    asked = {"name": "notes", "projectId": "project-one", "path": "files:corpus/"}
    made = owner.post("/datasets", asked)
    assert made.status == 201
    [version] = made.data["versions"]
    assert version["source"] == "files:corpus"
    preparation.prepare_version(version["id"])
    row = DatasetVersion.objects.get()
    assert (row.status, row.train_tokens + row.valid_tokens) == ("ready", 8 * 200 + 6 * 100), row.error
    kept = Path(row.train_path).read_bytes()
    assert colleague.delete(f"{FILES}?path=corpus&recursive=true").status == 200
    assert Path(row.train_path).read_bytes() == kept
    assert not list(Path(row.train_path).parent.parent.glob(".*"))
    assert owner.post("/datasets", asked).error == "FILE_NOT_FOUND"
    assert owner.post("/datasets", {**asked, "path": "files:../x"}).error == "FILE_PATH_INVALID"
    shared = {"name": "notes", "path": "files:corpus"}
    assert admin.post("/datasets", shared).problems == {"path": "DATA_FILES_NO_PROJECT"}


@pytest.mark.database
def test_token_files_are_a_dataset_and_changed_files_are_refused(owner: Api) -> None:
    for name, data in (("train.bin", b"\1\0" * 90), ("val.bin", b"\1\0" * 10)):
        assert upload_file(owner, f"pair/{name}", data)
    made = owner.post("/datasets", {"name": "pair", "projectId": "project-one", "path": "files:pair"}).data
    preparation.prepare_version(made["versions"][0]["id"])
    version = DatasetVersion.objects.get()
    assert (version.status, version.train_tokens, version.valid_tokens) == ("ready", 90, 10), version.error
    File.objects.filter(name="val.bin").update(sha256="0" * 64)
    again = owner.post(f"/datasets/{made['id']}/versions", {"path": "files:pair"}).data
    preparation.prepare_version(again["id"])
    assert DatasetVersion.objects.get(pk=again["id"]).error["code"] == "DATA_FILES_CHANGED"


# How much -------------------------------------------------------------------------------------------------------------
@HERE
@pytest.mark.parametrize(("size", "code"), [(10**15, "UPLOAD_TOO_LARGE"), (1 << 39, "UPLOAD_NO_ROOM")])
def test_a_file_that_does_not_fit_is_refused_before_anything_is_written(
    colleague: Api, monkeypatch: pytest.MonkeyPatch, store: Any, size: int, code: str
) -> None:
    monkeypatch.setattr(disks, "read_free_space", lambda _: {"free": 1 << 38, "total": 1 << 41})
    answer = colleague.post(UPLOADS, {"path": "a.bin", "sizeBytes": size, "sha256": "0" * 64})
    assert (answer.status, answer.problems) == (413, {"sizeBytes": code})
    assert not Upload.objects.exists()
    assert not store.staging.exists()


@HERE
def test_running_uploads_count_towards_the_quota(colleague: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "read_free_space", lambda _: {"free": 1000, "total": 2000})
    first = begin(colleague, "a.bin", b"x" * 600).data["id"]
    assert begin(colleague, "b.bin", b"x" * 500).error == "UPLOAD_NO_ROOM"
    send(colleague, first, 0, b"x" * 200)
    assert begin(colleague, "b.bin", b"x" * 500).status == 201


@HERE
def test_running_uploads_per_user_are_limited(colleague: Api, owner: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_UPLOADS", 2)
    begun = [begin(colleague, f"{number}.bin", b"x").data["id"] for number in range(2)]
    assert begin(colleague, "2.bin", b"x").error == "UPLOADS_TOO_MANY"
    assert begin(colleague, "1.bin", b"x").data["id"] == begun[1]  # it goes on with its own
    assert begin(owner, "2.bin", b"x").status == 201
    colleague.delete(f"{UPLOADS}/{begun[0]}")
    assert begin(colleague, "3.bin", b"x").status == 201
