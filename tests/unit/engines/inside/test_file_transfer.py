"""Files of tasks on their way between an environment and the platform: real processes of `fermi.inside`."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fermi.engines.inside import download, start, upload
from fermi.engines.inside.download import PARTIAL_FOLDER, NodeDownload, TransferLimits
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import JobSpec
from tests.inside_engines import Inside

ATTEMPT, NEXT = "task-x-1", "task-x-2"
BIG = os.urandom(3 << 20)
PIECE = download.MAX_PIECE_BYTES


class Place(Inside):
    """An environment, and the platform's data directory beside it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "environment")
        self.data, self.own = folder / "platform", self.home / ".fermi/data"
        self.data.mkdir()

    def write(self, path: str, content: bytes) -> Path:
        """As a rank does."""
        made = self.own / path
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_bytes(content)
        return made

    def collect(self, limits: TransferLimits = TransferLimits(), seconds: float = 60.0) -> None:  # noqa: B008
        start.download_leftovers(self.enter, ATTEMPT, 0, self.data, limits, seconds)

    def record(self) -> download.DownloadRecord:
        return download.read_record(download.build_record_path(self.data, ATTEMPT, 0))

    def ship(self, **order: Any) -> None:
        with self.enter() as session:
            start._upload_files(
                session, {"name": NEXT, "root": "/d", "spec": {"node_rank": 0}, **order}, self.data, 1e12
            )


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.end_container()


def test_files_of_ranks_are_downloaded_with_their_times(place: Place) -> None:
    written = place.write("checkpoints/task-x/step-10/weights.pt", BIG)
    place.write("checkpoints/task-x/empty", b"")
    place.write("outputs/task-x/report.txt", b"done")
    place.write("checkpoints/task-other/secret", b"of another task")
    place.collect()
    came = place.data / "checkpoints/task-x/step-10/weights.pt"
    assert (came.read_bytes(), came.stat().st_mtime_ns) == (BIG, written.stat().st_mtime_ns)
    assert (place.data / "checkpoints/task-x/empty").read_bytes() == b""
    assert (place.data / "outputs/task-x/report.txt").read_bytes() == b"done"
    assert not (place.data / "checkpoints/task-other").exists()
    assert list((place.data / "checkpoints" / PARTIAL_FOLDER).iterdir()) == []
    assert download.is_checkpoint_complete(place.data, f"{place.data}/checkpoints/task-x/step-10")


def test_an_interrupted_download_resumes(place: Place) -> None:
    """Each call has time for a piece or so, in a stream of its own."""
    place.write("checkpoints/task-x/weights.pt", BIG)
    lengths = list[int]()
    while not (place.data / "checkpoints/task-x/weights.pt").exists():
        with suppress(BackendError):
            place.collect(seconds=0.0)
            break
        (part,) = (place.data / "checkpoints" / PARTIAL_FOLDER).iterdir()
        lengths.append(part.stat().st_size)
        assert not download.is_checkpoint_complete(place.data, f"{place.data}/checkpoints/task-x/weights.pt")
    assert len(lengths) > 1
    assert lengths == sorted(set(lengths))
    assert (place.data / "checkpoints/task-x/weights.pt").read_bytes() == BIG


def test_a_corrupt_part_is_read_again(place: Place) -> None:
    """As after a crash of the platform's machine, which may leave zeros."""
    place.write("checkpoints/task-x/weights.pt", BIG)
    with pytest.raises(BackendError):
        place.collect(seconds=0.0)
    (part,) = (place.data / "checkpoints" / PARTIAL_FOLDER).iterdir()
    part.write_bytes(b"\0" * part.stat().st_size)
    place.collect()
    assert (place.data / "checkpoints/task-x/weights.pt").read_bytes() == BIG


def test_too_large_files_are_skipped_and_reported(place: Place) -> None:
    place.write("checkpoints/task-x/step-10/weights.pt", b"x" * 1000)
    place.write("checkpoints/task-x/step-20/weights.pt", b"x" * 5000)
    place.collect(TransferLimits(folder=2000))
    assert place.record().left_out == [
        {"code": "INSIDE_FILES_TOO_LARGE", "path": "checkpoints/step-20", "size": 5000, "limit": 2000}
    ]
    assert os.listdir(place.data / "checkpoints/task-x") == ["step-10"]
    place.collect(TransferLimits(task=5500))
    (said,) = place.record().left_out
    assert (said["code"], said["path"], said["limit"]) == ("INSIDE_FILES_OVER_LIMIT", "checkpoints/step-10", 5500)
    (place.data / "checkpoints/task-x/older").write_bytes(b"x" * 600)
    place.write("outputs/task-x/log", b"x" * 100)
    for limit, found in ((6699, ["checkpoints/step-10"]), (6700, [])):  # what was here counts
        place.collect(TransferLimits(task=limit))
        assert [one["path"] for one in place.record().left_out] == found


def test_links_and_pipes_are_not_followed(place: Place, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the machine")
    folder = place.write("checkpoints/task-x/good", b"good").parent
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "folder").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    place.collect()
    assert os.listdir(place.data / "checkpoints/task-x") == ["good"]


def test_the_next_attempt_gets_only_missing_files(place: Place) -> None:
    for path, content in (("step-10/a.pt", BIG), ("step-20/a.pt", b"new"), ("latest", b"step-20")):
        file = place.data / "checkpoints/task-x" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    place.ship(resume="/d/checkpoints/task-x/step-20")
    own = place.own / "checkpoints/task-x"
    assert sorted(path.relative_to(own).as_posix() for path in own.rglob("*.*")) == ["step-20/a.pt"]
    assert (own / "latest").read_text() == "step-20"
    inode = (own / "step-20/a.pt").stat().st_ino
    place.ship(resume="auto")
    assert (own / "step-10/a.pt").read_bytes() == BIG
    assert (own / "step-20/a.pt").stat().st_ino == inode
    (own / "mine").write_text("of a rank here")
    for path in ("step-10/a.pt", "latest"):
        (place.data / "checkpoints/task-x" / path).unlink()
    place.ship()
    assert sorted(os.listdir(own)) == ["mine", "step-10", "step-20"]
    assert os.listdir(own / "step-10") == []
    place.collect()  # what the platform has sent is not brought back
    assert sorted(os.listdir(place.data / "checkpoints/task-x")) == ["mine", "step-10", "step-20"]
    assert os.listdir(place.data / "checkpoints/task-x/step-10") == []


def test_checkpoint_and_dataset_are_uploaded(place: Place) -> None:
    for path in (
        "checkpoints/task-old/step-5/a.pt", "checkpoints/task-old/step-6/a.pt", "datasets/set/train.bin",
        "datasets/other/train.bin", "trees/task-x/code/out/state.json", "checkpoints/task-x/step-1",
    ):  # fmt: skip
        (place.data / path).parent.mkdir(parents=True, exist_ok=True)
        (place.data / path).write_text(path)
    (place.data / "datasets/set/link").symlink_to("/etc/passwd")
    place.ship(resume="/d/checkpoints/task-old/step-5", reads=["datasets/set", "datasets/absent"])
    assert sorted(path.relative_to(place.own).as_posix() for path in place.own.rglob("*") if path.is_file()) == [
        "checkpoints/task-old/step-5/a.pt", "checkpoints/task-x/step-1", "datasets/set/train.bin",
        "trees/task-x/code/out/state.json",
    ]  # fmt: skip


@pytest.mark.parametrize(("named", "found"), [
    ({"train_data": "/d/datasets/set/train.bin"}, None),
    ({"train_data": "/elsewhere/train.bin"}, None),
    ({"train_data": "/d/datasets/large/train.bin"}, {"size": "5 KiB", "limit": "2 KiB"}),
    ({"resume_from": "/d/checkpoints/task-old/step-5"}, {"size": "3 KiB", "limit": "1 KiB"}),
    ({"resume_from": "/d/checkpoints/task-x/step-5"}, None),
    ({"env": {"KEY": "/d/secret_key"}}, {}),
    ({"env": {"KEY": "/d/datasets/../secret_key"}}, {}),
    ({"env": {"KEY": "/d/checkpoints/task-other/step-1"}}, {}),
])  # fmt: skip
def test_an_upload_beyond_the_limit_is_refused(
    tmp_path: Path, named: dict[str, Any], found: dict[str, str] | None
) -> None:
    for path, size in (("datasets/set/train.bin", 1), ("datasets/large/train.bin", 5), ("secret_key", 1),
                       ("checkpoints/task-old/step-5/a.pt", 3), ("checkpoints/task-x/step-5/a.pt", 9)):  # fmt: skip
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"x" * (size << 10))
    job = JobSpec("task-x", "ddp", (), "env-a", **named)
    said = upload.find_upload_problem(job, tmp_path, TransferLimits(folder=1 << 10, data=2 << 10), "/d", str(tmp_path))
    assert said is None if found is None else said is not None
    assert found is None or {name: value for name, value in (said or {}).items() if name != "path"} == found


def test_uploaded_files_are_verified(place: Place) -> None:
    data = b"weights"
    with place.enter() as session:
        about = {"path": "checkpoints/task-x/a", "size": len(data), "mtime": 1}
        with pytest.raises(BackendError) as refused:
            session.request("receive", data, **about, at=0, sha256=hashlib.sha256(b"others").hexdigest())  # type: ignore[arg-type]
        assert (refused.value.code, refused.value.permanent) == ("INSIDE_FILE_BROKEN", False)
        assert session.request("receive", **about) == {"id": 2, "ok": True, "have": 0}  # type: ignore[arg-type]


class Asked:
    """Requests of an arrival, answered by the test."""

    def __init__(self) -> None:
        self.requests: dict[int, tuple[str, Mapping[str, Any]]] = {}

    def __call__(self, what: str, **request: Any) -> int:
        number = len(self.requests) + 1
        self.requests[number] = what, request
        return number


HOSTILE = [
    "checkpoints/../../x", "checkpoints//etc", "checkpoints/./x", "checkpoints", "checkpoints/", "logs/1/0.log",
    "../checkpoints/x", "/etc/passwd", "checkpoints/a\0b", "checkpoints/\ud800", "checkpoints/" + "a" * 256,
    "checkpoints/" + "/".join(["a"] * 40), "checkpoints/" + "/".join(["a" * 200] * 10), 7, None, ["checkpoints/x"],
    f"checkpoints/{PARTIAL_FOLDER}/x",
]  # fmt: skip


def test_paths_in_a_hostile_listing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "logs/task-x/1").mkdir(parents=True)
    one, asked = NodeDownload(tmp_path, ATTEMPT, 0, TransferLimits()), Asked()
    rows: list[Any] = [[path, 1, 1, False] for path in HOSTILE]
    rows += [["checkpoints/x", size, 1, False] for size in (-2, 1 << 60, "1", True, None, 1.5)]
    rows += [["checkpoints/x", 1, mtime, False] for mtime in (-1, 1 << 64, "1")]
    rows += [[], {}, "row", ["checkpoints/x"]]
    for said in (rows, "files", {"checkpoints/x": 1}, 5):
        one.process_list({"files": said, "final": True})
        one.request_files(asked)
        assert one.is_done
    assert asked.requests == {}
    assert sorted(os.listdir(tmp_path)) == ["logs"]


def test_unrequested_answers_write_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs/task-x/1").mkdir(parents=True)
    one, asked = NodeDownload(tmp_path, ATTEMPT, 0, TransferLimits()), Asked()
    one.process_list({"files": [["checkpoints/x", 5, 1, False]], "final": True})
    one.request_files(asked)
    (request,) = asked.requests.values()
    assert request[1]["path"] == "checkpoints/x"
    good = hashlib.sha256(b"12345").hexdigest()
    for number in (7, None, "1", -1):
        one.answer(number, {"ok": True, "sha256": good}, b"12345")
    assert not (tmp_path / "checkpoints/task-x").exists()
    number = 1
    for data in (b"1234", b"123456", b"54321"):  # too little, too much, another
        one.answer(number, {"ok": True, "sha256": hashlib.sha256(data).hexdigest() if len(data) != 5 else good}, data)
        one.request_files(asked)
        number = len(asked.requests)
    assert one.is_done
    assert [said["code"] for said in one.record.left_out] == ["INSIDE_FILES_FAILED"]
    assert not (tmp_path / "checkpoints/task-x").exists()


def test_a_link_in_the_tasks_local_folder_is_not_followed(tmp_path: Path) -> None:
    """A rank beside, which writes there too, may have put it."""
    (tmp_path / "logs/task-x/1").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "checkpoints/task-x").mkdir(parents=True)
    (tmp_path / "checkpoints/task-x/step").symlink_to(tmp_path / "elsewhere")
    one, asked = NodeDownload(tmp_path, ATTEMPT, 0, TransferLimits()), Asked()
    one.process_list({"files": [["checkpoints/step/x", 5, 1, False]], "final": True})
    one.request_files(asked)
    one.answer(1, {"ok": True, "sha256": hashlib.sha256(b"12345").hexdigest()}, b"12345")
    assert os.listdir(tmp_path / "elsewhere") == []
    assert [said["code"] for said in one.record.left_out] == ["INSIDE_FILES_FAILED"]


def test_a_file_of_two_nodes_is_downloaded_once(tmp_path: Path) -> None:
    (tmp_path / "logs/task-x/1").mkdir(parents=True)
    both = [["outputs/log", 1, 1, False]]
    nodes = [NodeDownload(tmp_path, ATTEMPT, node, TransferLimits()) for node in (0, 1)]
    wanted = list[set[str]]()
    for node, one in enumerate(nodes):
        asked = Asked()
        one.process_list({"files": [*both, [f"checkpoints/step/{node}", 1, 1, False]], "final": True})
        while not one.is_done:
            one.request_files(asked)
            number = len(asked.requests)
            one.answer(number, {"ok": True, "sha256": hashlib.sha256(b"x").hexdigest()}, b"x")
        wanted.append({request[1]["path"] for request in asked.requests.values()})
    assert wanted == [{"outputs/log", "checkpoints/step/0"}, {"checkpoints/step/1"}]
    assert sorted(os.listdir(tmp_path / "checkpoints/task-x/step")) == ["0", "1"]


def test_files_removed_by_ranks_are_removed_except_the_last_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "logs/task-x/1").mkdir(parents=True)
    one, asked = NodeDownload(tmp_path, ATTEMPT, 0, TransferLimits()), Asked()
    rows = [[f"checkpoints/{step}", 1, 1, False] for step in (10, 20)]

    def take(found: Any) -> list[str]:
        one.process_list({"files": found, "final": True})
        while not one.is_done:
            one.request_files(asked)
            one.answer(len(asked.requests), {"ok": True, "sha256": hashlib.sha256(b"x").hexdigest()}, b"x")
        return sorted(os.listdir(tmp_path / "checkpoints/task-x"))

    assert take(rows) == ["10", "20"]
    assert take(rows[1:]) == ["20"]
    assert take(None) == ["20"]
    assert take([]) == ["20"]
    assert take([["outputs/x", 1, 1, False]]) == ["20"]


def test_a_file_that_changes_while_read_is_retried(place: Place) -> None:
    path = place.write("checkpoints/task-x/weights.pt", BIG)
    (place.data / "logs/task-x/1").mkdir(parents=True)
    one = NodeDownload(place.data, ATTEMPT, 0, TransferLimits())
    with place.enter() as session:
        one.process_list({"files": session.request("list", of=ATTEMPT)["rows"], "final": True})
        path.write_bytes(BIG[::-1])
        one.request_files(session.send)
        said, data = next(session.messages())
        assert said["code"] == "INSIDE_FILE_CHANGED"
        one.answer(said["id"], said, data)
        assert not one.is_done
        one.process_list({"files": session.request("list", of=ATTEMPT)["rows"], "final": True})
        one.request_files(session.send)
        for said, data in session.messages():
            one.answer(said["id"], said, data)
            one.request_files(session.send)
            if one.is_done:
                break
    assert (place.data / "checkpoints/task-x/weights.pt").read_bytes() == BIG[::-1]
