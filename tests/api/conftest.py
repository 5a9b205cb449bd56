"""People around one project, and the API as each of them sees it.

owner      maintainer of the project        viewer     may look
colleague  member of it                     stranger   maintainer of another project
anonymous  nobody                           admin      the platform's administrator
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from apps.accounts.models import ApiToken, Membership, Project, Role, User
from apps.catalog.models import Dataset, DatasetVersion, Model, VersionStatus
from apps.clusters.models import Cluster, DevEnvironment
from apps.common.clock import now
from server import demo

BASE = "/api/v1"


@dataclass
class Answer:
    """`data` of an envelope, or its error codes by field; `body` is the whole envelope."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Any:
        assert self.status < 300, self.body
        return self.body["data"]

    @property
    def ids(self) -> list[str]:
        return [item["id"] for item in self.data["items"]]

    @property
    def error(self) -> str:
        assert self.status >= 400, self.body
        return self.body["error"]

    @property
    def problems(self) -> dict[str, str]:
        assert self.status >= 400, self.body
        return {problem["field"]: problem["error"] for problem in self.body["errors"]}


@dataclass
class Api:
    """`api.get("/projects", page=2)`: paths under the base path, as `user`, in Chinese unless told otherwise."""

    user: User | None = None
    lang: str = "zh-CN"
    token: str = ""

    def __post_init__(self) -> None:
        self.client = Client(raise_request_exception=False)
        if self.user:
            _, self.token = ApiToken.objects.create(user=self.user, expiry=None, name="tests", last_used_at=now())

    def get(self, path: str, **query: Any) -> Answer:
        return self._send("GET", path, query=query)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self._send("POST", path, {} if body is None else body, headers=headers)

    def put(self, path: str, body: Any) -> Answer:
        return self._send("PUT", path, body)

    def patch(self, path: str, body: Any) -> Answer:
        return self._send("PATCH", path, body)

    def delete(self, path: str, body: Any = None) -> Answer:
        return self._send("DELETE", path, body)

    def _send(self, method: str, path: str, body: Any = None, *, query: Any = None, headers: Any = None) -> Answer:
        sent = {"Accept-Language": self.lang, **{name.replace("_", "-"): v for name, v in (headers or {}).items()}}
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        response = self.client.generic(
            method,
            BASE + path,
            body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b"",
            content_type="application/json",
            headers=sent,
            query_params=query,
        )
        is_json = response.headers.get("Content-Type", "").startswith("application/json")
        content = b"" if response.streaming else response.content
        return Answer(response.status_code, json.loads(content) if is_json else content, dict(response.headers))


def make_user(name: str, project: Project | None = None, role: str = Role.MEMBER) -> User:
    user = User.objects.create_user(name, f"{name}@example.org", "a long enough password")
    if project:
        Membership.objects.create(project=project, user=user, role=role)
    return user


@pytest.fixture(autouse=True)
def database(db: None) -> None:
    """For every test here, also where a person is asked for by name while the test runs."""


@pytest.fixture
def project(db: None) -> Project:
    return Project.objects.create(pk="project-one", name="one")


@pytest.fixture
def other_project(db: None) -> Project:
    return Project.objects.create(pk="project-two", name="two")


@pytest.fixture
def owner(project: Project) -> Api:
    return Api(make_user("owner", project, Role.MAINTAINER))


@pytest.fixture
def colleague(project: Project) -> Api:
    return Api(make_user("colleague", project, Role.MEMBER))


@pytest.fixture
def viewer(project: Project) -> Api:
    return Api(make_user("viewer", project, Role.VIEWER))


@pytest.fixture
def stranger(other_project: Project) -> Api:
    return Api(make_user("stranger", other_project, Role.MAINTAINER))


@pytest.fixture
def anonymous(db: None) -> Api:
    return Api()


@pytest.fixture
def admin(db: None) -> Api:
    return Api(User.objects.create_superuser("admin"))


@pytest.fixture
def cluster(db: None) -> Cluster:
    return Cluster.objects.create(pk="local", name="local", backend="local")


@pytest.fixture
def environments(project: Project, cluster: Cluster) -> dict[str, DevEnvironment]:
    """The demo inventory, in `project`: env-001 (2×A100) … env-005 (8×A100), env-004 stopped."""
    demo.add_environments(project, cluster, {"python": "3.11.9", "torch": "2.13.0"})
    return DevEnvironment.objects.select_related("zone", "cluster").in_bulk()


@pytest.fixture
def dataset(db: None) -> Dataset:
    """dataset-001 with the ready version-001, offered to every project."""
    dataset = Dataset.objects.create(pk="dataset-001", name="text")
    DatasetVersion.objects.create(
        pk="version-001",
        dataset=dataset,
        name="v1",
        status=VersionStatus.READY,
        progress=1.0,
        train_path="/data/train.bin",
        valid_path="/data/val.bin",
        train_tokens=900,
        valid_tokens=100,
    )
    return dataset


@pytest.fixture
def model(db: None) -> Model:
    """model-001, the reference GPT, offered to every project."""
    return Model.objects.create(pk="model-001", name="gpt-small", recipe="gpt", defaults=demo.GPT_DEFAULTS)


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., CommandResult]


@pytest.fixture
def command(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs `fermi` in this process, as the user of `api`."""
    from fermi.cli import texts
    from fermi.cli.main import run_command

    monkeypatch.delenv("FERMI_DATA", raising=False)
    monkeypatch.setenv("FERMI_URL", str(live_server.url))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    texts.set_language("en")

    def execute(api: Api, name: str, *arguments: str) -> CommandResult:
        monkeypatch.setenv("FERMI_TOKEN", api.token or "")
        code = run_command([name, "--lang", "en", *arguments])
        return CommandResult(code, *capsys.readouterr())

    return execute
