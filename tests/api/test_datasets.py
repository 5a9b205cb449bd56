import os
import shutil
from pathlib import Path

import pytest

from apps.catalog import preparation
from apps.catalog.models import Dataset, DatasetVersion
from apps.catalog.preparation import STDLIB_SOURCE
from apps.common.clock import now
from tests.api.conftest import Api

pytestmark = pytest.mark.database


@pytest.fixture(autouse=True)
def data_dir(settings: object, tmp_path: Path) -> Path:
    """The operator allows any folder; what is the platform's own lies here."""
    settings.DATA_ROOTS = ["/"]
    settings.DATA_DIR = tmp_path / "platform"
    settings.DATA_DIR.mkdir()
    return settings.DATA_DIR


@pytest.fixture
def text(tmp_path: Path) -> Path:
    folder = tmp_path / "text"
    folder.mkdir()
    for n in range(20):
        (folder / f"{n}.txt").write_text(f"line {n}\n" * 50)
    return folder


def test_a_text_folder_becomes_a_dataset_in_preparation(owner: Api, text: Path) -> None:
    made = owner.post("/datasets", {"name": "notes", "projectId": "project-one", "path": str(text)})
    assert made.status == 201
    [version] = made.data["versions"]
    assert (version["name"], version["status"], version["progress"]) == ("v1", "preparing", 0.0)
    assert version["source"] == str(text)
    assert owner.get("/datasets", search="notes").ids == [made.data["id"]]


def test_preparation_tokenises_the_text(owner: Api, text: Path) -> None:
    made = owner.post("/datasets", {"name": "notes", "projectId": "project-one", "path": str(text)}).data
    preparation.prepare_version(made["versions"][0]["id"])
    [version] = owner.get(f"/datasets/{made['id']}").data["versions"]
    size = sum(len(path.read_bytes()) for path in text.iterdir())
    assert (version["status"], version["progress"]) == ("ready", 1.0)
    assert version["trainTokens"] + version["validTokens"] == size
    assert version["sizeBytes"] == 2 * size
    assert len(version["sha256"]) == 64


def test_a_pair_of_token_files_is_used_in_place(owner: Api, text: Path) -> None:
    (text / "train.bin").write_bytes(b"\1\0" * 90)
    (text / "val.bin").write_bytes(b"\1\0" * 10)
    made = owner.post("/datasets", {"name": "pair", "projectId": "project-one", "path": str(text)}).data
    preparation.prepare_version(made["versions"][0]["id"])
    version = DatasetVersion.objects.get()
    assert (version.status, version.train_tokens, version.valid_tokens) == ("ready", 90, 10)
    assert version.train_path == str(text / "train.bin")
    assert version.largest_token == 1


def test_unusable_data_fails_with_a_reason_in_the_readers_language(owner: Api, text: Path) -> None:
    (text / "train.bin").write_bytes(b"\1\0")
    made = owner.post("/datasets", {"name": "half", "projectId": "project-one", "path": str(text)}).data
    preparation.prepare_version(made["versions"][0]["id"])
    [version] = owner.get(f"/datasets/{made['id']}").data["versions"]
    assert version["status"] == "failed"
    assert version["error"]["code"] == "DATA_PATH_MISSING"
    assert "val.bin" in version["error"]["message"]
    assert "不存在" in version["error"]["message"]


def test_another_version_gets_the_next_name(owner: Api, text: Path) -> None:
    made = owner.post("/datasets", {"name": "notes", "projectId": "project-one", "path": str(text)}).data
    versions = f"/datasets/{made['id']}/versions"
    second = owner.post(versions, {"path": str(text)})
    assert (second.status, second.data["name"]) == (201, "v2")
    assert owner.post(versions, {"path": str(text), "name": "v2"}).problems == {"name": "VERSION_NAME_TAKEN"}
    assert owner.get(versions).data["total"] == 2


@pytest.mark.parametrize(
    ("path", "code"),
    [("relative/folder", "DATA_PATH_RELATIVE"), ("/nowhere/at/all", "DATA_PATH_MISSING"), ("", "FIELD_BLANK")],
)
def test_an_invalid_path_is_refused_at_once(owner: Api, path: str, code: str) -> None:
    answer = owner.post("/datasets", {"name": "x", "projectId": "project-one", "path": path})
    assert (answer.status, answer.problems) == (400, {"path": code})
    assert not Dataset.objects.exists()


def test_a_path_outside_the_allowed_folders_is_refused_even_through_a_link(
    owner: Api, text: Path, tmp_path: Path, settings: object
) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "link").symlink_to(text)
    settings.DATA_ROOTS = [str(allowed)]
    for path in (text, allowed / "link", allowed / ".." / "text"):
        answer = owner.post("/datasets", {"name": "x", "projectId": "project-one", "path": str(path)})
        assert answer.problems == {"path": "DATA_PATH_OUTSIDE"}
        assert str(allowed) in answer.body["errors"][0]["hint"]


def test_by_default_datasets_come_only_from_open_folders_of_the_data_directory(
    owner: Api, text: Path, data_dir: Path, settings: object
) -> None:
    settings.DATA_ROOTS = []
    for folder in ("datasets", "workspace"):
        shutil.copytree(text, data_dir / folder / "mine")
        answer = owner.post(
            "/datasets", {"name": folder, "projectId": "project-one", "path": f"{data_dir}/{folder}/mine"}
        )
        assert answer.status == 201
    for path in ("/etc/passwd", str(text)):
        answer = owner.post("/datasets", {"name": "x", "projectId": "project-one", "path": path})
        assert answer.problems == {"path": "DATA_PATH_OUTSIDE"}
        assert str(data_dir / "workspace") in answer.body["errors"][0]["hint"]


@pytest.mark.parametrize("name", ["token", "secret_key", "logs", "checkpoints/task-1", ".", ".."])
def test_the_platforms_own_files_cannot_be_a_dataset(owner: Api, data_dir: Path, name: str) -> None:
    (data_dir / name).parent.mkdir(parents=True, exist_ok=True)
    if not (data_dir / name).exists():
        (data_dir / name).write_text("secret")
    answer = owner.post("/datasets", {"name": "x", "projectId": "project-one", "path": str(data_dir / name)})
    assert answer.problems == {"path": "DATA_PATH_OUTSIDE"}
    (data_dir / "workspace").mkdir()
    (data_dir / "workspace" / "link").symlink_to(data_dir / name)
    answer = owner.post("/datasets", {"name": "x", "projectId": "project-one", "path": f"{data_dir}/workspace/link"})
    assert answer.problems == {"path": "DATA_PATH_OUTSIDE"}


@pytest.mark.parametrize("put", ["file", "pair"])
def test_a_link_added_to_a_dataset_later_is_not_followed_outside(
    owner: Api, text: Path, data_dir: Path, put: str
) -> None:
    (data_dir / "token").write_text("fermi_0123")
    made = owner.post("/datasets", {"name": "notes", "projectId": "project-one", "path": str(text)}).data
    names = ("train.bin", "val.bin") if put == "pair" else ("99.txt",)
    for name in names:
        (text / name).symlink_to(data_dir / "token")
    preparation.prepare_version(made["versions"][0]["id"])
    [version] = owner.get(f"/datasets/{made['id']}").data["versions"]
    assert (version["status"], version["error"]["code"]) == ("failed", "DATA_LEADS_OUTSIDE")
    assert names[0] in version["error"]["message"]
    assert not list((data_dir / "datasets").glob("*/*.bin"))


@pytest.mark.parametrize(("what", "code"), [("/dev/zero", "DATA_IS_DEVICE"), ("pipe", "DATA_IS_PIPE")])
def test_a_path_that_is_neither_file_nor_folder_is_refused(owner: Api, text: Path, what: str, code: str) -> None:
    path = what if what.startswith("/") else str(text / what)
    if what == "pipe":
        os.mkfifo(path)
    answer = owner.post("/datasets", {"name": "x", "projectId": "project-one", "path": path})
    assert (answer.status, answer.problems) == (400, {"path": code})
    assert path in answer.body["errors"][0]["message"]


@pytest.mark.parametrize("who", ["viewer", "colleague"])
def test_only_maintainers_name_paths(who: str, request: pytest.FixtureRequest, text: Path) -> None:
    api: Api = request.getfixturevalue(who)
    answer = api.post("/datasets", {"name": "x", "projectId": "project-one", "path": str(text)})
    assert (answer.status, answer.error) == (403, "FORBIDDEN")


def test_only_an_administrator_offers_data_to_every_project(
    owner: Api, stranger: Api, admin: Api, text: Path, dataset: Dataset
) -> None:
    assert owner.post("/datasets", {"name": "x", "path": str(text)}).error == "FORBIDDEN"
    made = admin.post("/datasets", {"name": "x", "path": str(text)})
    assert made.status == 201
    assert set(stranger.get("/datasets").ids) == {"dataset-001", made.data["id"]}
    assert owner.post("/datasets/dataset-001/versions", {"path": str(text)}).error == "FORBIDDEN"


def test_strangers_do_not_see_a_projects_datasets(owner: Api, stranger: Api, text: Path) -> None:
    made = owner.post("/datasets", {"name": "notes", "projectId": "project-one", "path": str(text)}).data
    assert stranger.get("/datasets").data["total"] == 0
    assert stranger.get(f"/datasets/{made['id']}").status == 404
    assert stranger.get(f"/datasets/{made['id']}/versions").status == 404
    answer = stranger.post("/datasets", {"name": "x", "projectId": "project-one", "path": str(text)})
    assert answer.problems == {"projectId": "PROJECT_UNKNOWN"}


def test_anonymous_is_told_to_sign_in(anonymous: Api) -> None:
    assert anonymous.get("/datasets").status == 401
    assert anonymous.post("/datasets", {}).status == 401


def test_list_queries_do_not_grow_with_rows(viewer: Api, django_assert_num_queries: object) -> None:
    for n in range(30):
        dataset = Dataset.objects.create(name=f"d{n}")
        DatasetVersion.objects.create(dataset=dataset, name="v1", source=STDLIB_SOURCE, due_at=now())
    with django_assert_num_queries(4):  # who is asking; the page; its versions; how many there are
        assert viewer.get("/datasets").data["total"] == 30
