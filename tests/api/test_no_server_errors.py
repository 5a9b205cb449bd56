"""Whatever comes in and whatever breaks: under the API's address the answer is the envelope, and a fault of the request
is a 4xx with a code. What no hand-written case thinks of, `test_every_operation.py` does."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts import selectors
from apps.accounts.access import UserRights
from apps.catalog.models import Dataset
from apps.common import exception_handler, renderers
from apps.training.logs.pages import LogPosition
from apps.training.models import Attempt, Task
from apps.training.presenters import stream_polling
from tests.api.conftest import BASE, Api
from tests.api.test_tasks_create import changed

pytestmark = pytest.mark.database

TOO_LONG = "x" * 256
"""More than a file's name may have on any common file system (255 bytes)."""
SIGN_IN = {"username": "nobody", "password": "a long enough password"}


def envelope(response: Any) -> dict[str, Any]:
    """The body of an error, which it must be."""
    assert response.headers["Content-Type"] == "application/json", response.content[:200]
    body = json.loads(response.content)
    assert set(body) == {"code", "message", "error", "errors", "requestId"}
    assert body["code"] == response.status_code
    assert body["message"]
    assert body["errors"]
    assert body["requestId"] == response.headers["X-Request-ID"]
    return body


# Paths ----------------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("environments", "dataset", "model")
@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("resumeFrom", {"resumeFrom": f"/{TOO_LONG}"}),
        ("entrypoint.script", {"entrypoint": {"script": TOO_LONG}}),
        ("entrypoint.script", {"entrypoint": {"script": f"/{TOO_LONG}/train.py"}}),
    ],
)
def test_a_task_path_that_no_file_system_accepts_is_refused(
    colleague: Api, settings: Any, field: str, change: dict
) -> None:
    Path(settings.DATA_DIR, "workspace").mkdir(exist_ok=True)
    answer = colleague.post("/training-tasks", changed(**change))
    assert (answer.status, answer.problems) == (400, {field: "PATH_UNUSABLE"})
    assert "File name too long" in answer.body["message"]


def test_a_dataset_path_that_no_file_system_accepts_is_refused(owner: Api, settings: Any) -> None:
    settings.DATA_ROOTS = ["/"]
    body = {"name": "notes", "projectId": "project-one", "path": f"/{TOO_LONG}"}
    answer = owner.post("/datasets", body)
    assert (answer.status, answer.problems) == (400, {"path": "PATH_UNUSABLE"})
    assert not Dataset.objects.exists()


# Logs -----------------------------------------------------------------------------------------------------------------
FAR = 10**18 - 1
"""The largest place in a log that a cursor may name: beyond what a file system lets anybody seek to."""


@pytest.fixture
def log(colleague: Api, environments: Any, dataset: Any, model: Any, settings: Any) -> Path:
    """The log of rank 0 of the first attempt."""
    task = Task.objects.get(pk=colleague.post("/training-tasks", changed()).data["taskId"])
    Task.objects.filter(pk=task.pk).update(attempt=1)
    Attempt.objects.create(task=task, number=1, master_port=29500, created_at=timezone.now())
    path = Path(settings.DATA_DIR, "logs", task.pk, "1", "0.log")
    path.parent.mkdir(parents=True)
    path.write_text("one line\n", encoding="utf-8")
    return path


def task_path(log: Path, what: str) -> str:
    return f"/training-tasks/{log.parts[-3]}/{what}"


@pytest.mark.parametrize("cursor", [f"1@0:{FAR}", f"{FAR}@0:{FAR}", f"1@{FAR}:{FAR}"])
@pytest.mark.parametrize("rank", ["0", "all"])
def test_a_log_offset_far_beyond_the_end_is_accepted(colleague: Api, log: Path, cursor: str, rank: str) -> None:
    page = colleague.get(task_path(log, "logs"), cursor=cursor, rank=rank)
    assert [line for line in page.data["lines"] if line["offset"] > 0] == []


def test_a_stream_offset_far_beyond_the_end_is_accepted(colleague: Api, log: Path) -> None:
    assert colleague.user
    position = stream_polling.StreamCursor(1, FAR, FAR, 1, ((0, LogPosition(FAR)),))
    reader = UserRights(colleague.user.pk, is_superuser=False)
    [found] = stream_polling.poll_requests(
        [(stream_polling.StreamRequest(log.parts[-3], reader, "en", "all", position), {})]
    )
    assert isinstance(found, stream_polling.StreamMessages)
    assert re.findall(rb"^event: (\w+)", found.body, re.MULTILINE) == [b"status"]


def test_an_unreadable_log_is_an_error(colleague: Api, log: Path) -> None:
    assert colleague.get(task_path(log, "logs/download")).status == 200
    log.unlink()
    log.mkdir()
    answer = colleague.get(task_path(log, "logs/download"))
    assert (answer.status, answer.error) == (500, "INTERNAL_ERROR")


# Faults of ours -------------------------------------------------------------------------------------------------------
class Breaks:
    """Middleware that fails as it is told, however late."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        self.get_response(request)
        raise RuntimeError("the secret detail")


def broken(*args: object, **kwargs: object) -> None:
    raise RuntimeError("the secret detail")


@pytest.fixture(params=[False, True], ids=["as shipped", "with DEBUG"])
def debug(request: pytest.FixtureRequest, settings: Any) -> None:
    settings.DEBUG = request.param


@pytest.mark.usefixtures("debug")
class TestWhateverBreaksTheAnswerIsTheEnvelope:
    @pytest.fixture
    def refused(self, viewer: Api) -> Any:
        def ask(path: str = "/auth/me") -> dict[str, Any]:
            headers = {"Authorization": f"Bearer {viewer.token}", "Accept": "text/html", "Accept-Language": "en"}
            response = viewer.client.get(BASE + path, headers=headers)
            assert b"secret" not in response.content
            return envelope(response)

        return ask

    def test_an_error_in_a_view_is_an_envelope(self, refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(selectors, "serialize_user", broken)
        body = refused()
        assert (body["code"], body["error"]) == (500, "INTERNAL_ERROR")
        assert body["requestId"] in body["errors"][0]["hint"]

    def test_an_error_in_the_exception_handler_is_an_envelope(
        self, refused: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(exception_handler, "to_api_error", broken)
        assert refused("/projects/none")["error"] == "INTERNAL_ERROR"

    def test_an_error_in_a_text_is_an_envelope(self, refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(selectors, "serialize_user", broken)
        monkeypatch.setattr("fermi.messages._load_file", broken)
        assert refused()["error"] == "INTERNAL_ERROR"

    def test_an_error_in_the_renderer_is_an_envelope(self, refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(renderers.JSONRenderer, "render", broken)
        assert refused()["error"] == "INTERNAL_ERROR"

    @pytest.mark.parametrize("value", ["\ud800", {"\ud800": 1}])
    def test_values_that_json_cannot_encode_are_an_envelope(
        self, refused: Any, monkeypatch: pytest.MonkeyPatch, value: Any
    ) -> None:
        monkeypatch.setattr(selectors, "serialize_user", lambda *_: {"value": value})
        assert refused()["error"] == "INTERNAL_ERROR"

    def test_an_error_in_middleware_is_an_envelope(self, refused: Any, settings: Any) -> None:
        settings.MIDDLEWARE = [*settings.MIDDLEWARE[:3], f"{__name__}.Breaks", *settings.MIDDLEWARE[3:]]
        assert refused()["error"] == "INTERNAL_ERROR"

    def test_an_error_in_authentication_is_an_envelope(self, refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("apps.accounts.api.authentication.hash_token", broken)
        assert refused()["error"] == "INTERNAL_ERROR"

    def test_an_unknown_address_is_an_envelope(self, refused: Any) -> None:
        assert refused("/nope")["error"] == "NO_SUCH_ADDRESS"

    def test_an_unknown_host_is_an_envelope(self, viewer: Api) -> None:
        response = viewer.client.get(f"{BASE}/auth/me", headers={"Host": "evil.example", "Accept-Language": "en"})
        body = envelope(response)
        assert (body["code"], body["error"]) == (400, "HOST_NOT_ALLOWED")
        assert "evil.example" in body["message"]

    def test_an_error_in_sign_in_is_an_envelope(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("allauth.headless.account.views.LoginView.dispatch", broken)
        client = Client(raise_request_exception=False)
        response = client.post("/_allauth/browser/v1/auth/login", SIGN_IN, content_type="application/json")
        assert envelope(response)["error"] == "INTERNAL_ERROR"
