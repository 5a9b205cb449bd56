"""What holds for every operation: the envelope, all problems at once, languages, pages, request ids, odd input."""

import json

import pytest
from django.db import OperationalError, connection
from django.test import Client

from apps.accounts import selectors
from apps.accounts.models import User
from tests.api.conftest import Api

pytestmark = pytest.mark.database


def test_an_answer_is_an_envelope(viewer: Api) -> None:
    answer = viewer.get("/projects")
    assert answer.status == 200
    assert set(answer.body) == {"code", "message", "data"}
    assert (answer.body["code"], answer.body["message"]) == (200, "成功")
    assert set(answer.data) == {"items", "total", "page", "pageSize"}


def test_an_error_is_an_envelope_with_every_problem(owner: Api) -> None:
    answer = owner.post("/tokens", {"nam": "x", "expiresInDays": "7"})
    assert answer.status == answer.body["code"] == 400
    assert answer.error == "INVALID_REQUEST"
    assert answer.problems == {"nam": "UNKNOWN_FIELD", "expiresInDays": "WRONG_TYPE", "name": "FIELD_REQUIRED"}
    assert set(answer.body["errors"][0]) == {"field", "error", "message", "hint"}
    assert "3" in answer.body["message"]


def test_an_unknown_field_is_refused_and_the_nearest_name_suggested(owner: Api) -> None:
    [problem] = owner.post("/tokens", {"name": "x", "expiresIndays": 7}).body["errors"]
    assert problem["error"] == "UNKNOWN_FIELD"
    assert "expiresInDays" in problem["hint"]


def test_operations_without_fields_refuse_unknown_fields(owner: Api) -> None:
    """A field that is ignored is a wish that nobody hears of."""
    token = owner.post("/tokens", {"name": "x"}).data["id"]
    refused = owner.delete(f"/tokens/{token}", {"force": True})
    assert (refused.status, refused.problems) == (400, {"force": "UNKNOWN_FIELD"})
    assert owner.delete(f"/tokens/{token}?force=true").problems == {"force": "UNKNOWN_FIELD"}
    assert owner.delete(f"/tokens/{token}", {}).status == 200


def test_the_strict_parameter_is_accepted_where_fields_are(owner: Api) -> None:
    assert owner.post("/tokens?strict=true", {"name": "x"}).status == 201
    assert owner.post("/tokens?strict=true", {"nam": "x"}).problems["nam"] == "UNKNOWN_FIELD"
    assert owner.post("/tokens?strict=perhaps", {"name": "x"}).problems == {"strict": "FIELD_INVALID"}


@pytest.mark.parametrize(
    "body", ['{"name": "x", // why\n "a": 1}', '{\n/* why */ "name": "x"}', '{"name": "x" # why\n}', "// why\n{}"]
)
def test_a_comment_field_is_named_in_the_error(owner: Api, body: str) -> None:
    answer = owner.post("/tokens", body.encode())
    assert (answer.status, answer.error) == (400, "JSON_COMMENT")
    assert "why" in answer.body["message"]


def test_a_single_problem_is_also_the_message(owner: Api) -> None:
    body = owner.post("/tokens", {"name": ""}).body
    assert body["message"] == body["errors"][0]["message"]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"page": 0}, {"page": "FIELD_RANGE"}),
        ({"page": "x"}, {"page": "FIELD_INVALID"}),
        ({"pageSize": 201}, {"pageSize": "FIELD_RANGE"}),
        ({"ordering": "secret"}, {"ordering": "FIELD_CHOICE"}),
        ({"pagesize": 5}, {"pagesize": "UNKNOWN_FIELD"}),
        ({"search": "x" * 101}, {"search": "FIELD_LENGTH"}),
        ({"search": "a\0b"}, {"search": "FIELD_INVALID"}),
        ({"page": -1, "pageSize": 0}, {"page": "FIELD_RANGE", "pageSize": "FIELD_RANGE"}),
    ],
)
def test_a_bad_query_is_refused(viewer: Api, query: dict, problem: dict) -> None:
    answer = viewer.get("/projects", **query)
    assert (answer.status, answer.problems) == (400, problem)


@pytest.mark.parametrize("path", ["/projects/%00", "/dev-environments/a%00b", "/tokens/%F0%28", "/datasets/%2e%2e"])
def test_a_malformed_id_is_not_found(owner: Api, path: str) -> None:
    answer = owner.delete(path) if path.startswith("/tokens") else owner.get(path)
    assert (answer.status, answer.error) in {(404, "NOT_FOUND"), (404, "NO_SUCH_ADDRESS")}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{nope", 400, "PARSE_ERROR"),
        (b'{"name": NaN}', 400, "PARSE_ERROR"),
        (b'{"name": "\\ud800"}', 400, "PARSE_ERROR"),
        (b"\xff\xfe", 400, "PARSE_ERROR"),
        (b"[1, 2]", 400, "INVALID_REQUEST"),
        (b'"text"', 400, "INVALID_REQUEST"),
        (b"[" * 100_000, 400, "PARSE_ERROR"),
        (b'{"name": "a\\u0000b"}', 400, "INVALID_REQUEST"),
        (b'{"name": "x", "expiresInDays": 1e400}', 400, "PARSE_ERROR"),
        (b'{"name": "x", "expiresInDays": 99999999999999999999999}', 400, "INVALID_REQUEST"),
        (b'"' + b"x" * (6 * 1024 * 1024) + b'"', 413, "BODY_TOO_LARGE"),
    ],
)
def test_a_body_that_is_not_a_json_object_is_refused(owner: Api, body: bytes, status: int, code: str) -> None:
    headers = {"Authorization": f"Bearer {owner.token}"}
    answer = owner.client.post("/api/v1/tokens", body, content_type="application/json", headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (status, code)


def test_another_media_type_is_refused(owner: Api) -> None:
    headers = {"Authorization": f"Bearer {owner.token}"}
    answer = owner.client.post("/api/v1/tokens", {"name": "x"}, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize("method", ["PATCH", "OPTIONS", "TRACE"])
def test_a_method_that_is_not_allowed_is_refused(owner: Api, method: str) -> None:
    answer = owner._send(method, "/tokens", {})
    assert (answer.status, answer.error) == (405, "METHOD_NOT_ALLOWED")


@pytest.mark.parametrize("accept", ["text/html", "text/event-stream", "*/*", "application/json; indent=4", "nonsense"])
def test_the_answer_is_json_for_any_accept_header(viewer: Api, accept: str) -> None:
    assert viewer.get("/projects").data
    headers = {"Authorization": f"Bearer {viewer.token}", "Accept": accept}
    assert viewer.client.get("/api/v1/projects", headers=headers).json()["code"] == 200


@pytest.mark.parametrize("path", ["/nope", "/projects/", "/training-tasks/x/nope/nope", ""])
def test_an_unknown_address_answers_with_the_envelope(anonymous: Api, path: str) -> None:
    answer = anonymous.get(path)
    assert (answer.status, answer.error) == (404, "NO_SUCH_ADDRESS")


@pytest.mark.parametrize(
    ("lang", "message"),
    [
        ("", "没有找到"),
        ("zh", "没有找到"),
        ("zh-TW,zh;q=0.9", "没有找到"),
        ("tlh", "没有找到"),
        ("en-US", "Not found"),
        ("en", "Not found"),
    ],
)
def test_messages_follow_accept_language_and_default_to_chinese(viewer: Api, lang: str, message: str) -> None:
    viewer.lang = lang
    assert viewer.get("/projects/none").body["message"].startswith(message)
    assert viewer.get("/auth/me").data["language"] == ("en" if lang.startswith("en") else "zh")


def test_every_answer_has_a_request_id_and_a_safe_one_from_the_client_is_kept(viewer: Api) -> None:
    made = viewer.get("/projects/none")
    assert made.body["requestId"] == made.headers["X-Request-ID"] != ""
    kept = viewer.post("/tokens", {}, X_Request_ID="my-request.1")
    assert kept.body["requestId"] == kept.headers["X-Request-ID"] == "my-request.1"
    unsafe = viewer.post("/tokens", {}, X_Request_ID="<script>evil</script>")
    assert "script" not in unsafe.headers["X-Request-ID"]


def test_an_unexpected_error_shows_only_its_request_id(
    viewer: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("the secret detail")

    monkeypatch.setattr(selectors, "serialize_user", broken)
    answer = viewer.get("/auth/me")
    assert (answer.status, answer.error) == (500, "INTERNAL_ERROR")
    assert "secret" not in json.dumps(answer.body)
    assert answer.body["requestId"] in answer.body["errors"][0]["hint"]
    assert "the secret detail" in caplog.text


def test_an_unavailable_database_is_503(viewer: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: object) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr(selectors, "serialize_user", away)
    assert (viewer.get("/auth/me").status, viewer.get("/auth/me").error) == (503, "DATABASE_UNAVAILABLE")


@pytest.mark.django_db(transaction=True)
def test_a_read_only_database_is_503_with_its_own_code(viewer: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    on, off = "PRAGMA query_only = 1", "PRAGMA query_only = 0"
    if connection.vendor == "postgresql":
        on, off = "SET default_transaction_read_only = on", "SET default_transaction_read_only = off"
    monkeypatch.setattr(selectors, "serialize_user", lambda *_: User.objects.update(first_name="new"))
    with connection.cursor() as cursor:
        cursor.execute(on)
        try:
            answer = viewer.get("/auth/me")
        finally:
            cursor.execute(off)
    assert (answer.status, answer.error) == (503, "DATABASE_READ_ONLY")
    assert User.objects.filter(first_name="new").count() == 0


def test_times_are_utc_with_a_z(viewer: Api) -> None:
    assert viewer.get("/projects").data["items"][0]["createdAt"].endswith("Z")


@pytest.mark.parametrize("header", ["Bearer", "Bearer a b", "Bearer \xff", "Bearer fermi_nope", "Basic YTpi"])
def test_a_bad_authorization_header_is_401(db: None, header: str) -> None:
    answer = Client().get("/api/v1/auth/me", headers={"Authorization": header})
    assert answer.status_code == 401
    assert answer.json()["error"] in {"TOKEN_INVALID", "NOT_AUTHENTICATED"}


def test_a_matching_etag_is_304_without_a_body(viewer: Api) -> None:
    first = viewer.get("/projects")
    assert first.headers["Cache-Control"] == "private, no-cache"
    again = viewer._send("GET", "/projects", headers={"If_None_Match": first.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")
    assert again.headers["ETag"] == first.headers["ETag"]
    viewer.lang = "en"
    other = viewer._send("GET", "/projects", headers={"If_None_Match": first.headers["ETag"]})
    assert other.status == 200
    assert other.headers["ETag"] != first.headers["ETag"]


def test_errors_and_changes_have_no_etag(owner: Api) -> None:
    assert "ETag" not in owner.get("/projects/nope").headers
    assert "ETag" not in owner.post("/tokens", {"name": "x"}).headers
