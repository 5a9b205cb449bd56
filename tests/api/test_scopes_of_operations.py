"""Roles × operations × scopes: each operation of the API with a token that lacks its scope, and with one that has
nothing else."""

import re

import pytest

from apps.accounts import scopes
from apps.accounts.models import ApiToken
from tests.api.conftest import Answer, Api
from tests.api.test_scopes import list_operations

pytestmark = pytest.mark.database

SCOPED = [
    (path.removeprefix("/api/v1"), method, one)
    for path, method, one in list_operations()
    if one["x-scope"] not in (scopes.ANY, scopes.WORKER)
]
OPERATIONS = [(path, method, one["x-scope"]) for path, method, one in SCOPED if {"token": []} in one["security"]]
BY_SESSION_ALONE = [
    (path, method, one["x-scope"]) for path, method, one in SCOPED if one["security"] == [{"session": []}]
]
ROLES = ("viewer", "colleague", "owner", "admin", "stranger")


def send_request(api: Api, path: str, method: str) -> Answer:
    """Send a request whose ids name nothing that exists, apart from the project of what only reads."""
    known = {"project_id": "project-one"} if method == "get" else {}
    filled = re.sub(r"\{([a-z_]+)\}", lambda found: known.get(found[1], "1"), path)
    if method == "get":
        return api.get(filled)
    if method == "delete":
        return api.delete(filled)
    return {"post": api.post, "put": api.put, "patch": api.patch}[method](filled, {})


def set_scopes(api: Api, chosen: list[str]) -> None:
    assert api.user
    ApiToken.objects.filter(user=api.user).update(scopes=chosen)


def list_others(scope: str) -> list[str]:
    """Return all scopes that do not contain this one."""
    return [other for other in scopes.SCOPES if not scopes.contains_scope([other], scope)]


def test_the_document_has_operations_of_nearly_all_scopes() -> None:
    assert len(OPERATIONS) > 200
    assert len({scope for _, _, scope in OPERATIONS}) > 30


@pytest.mark.parametrize("role", ROLES)
def test_no_operation_answers_a_token_that_has_all_scopes_but_its_own(
    role: str, request: pytest.FixtureRequest, owner: Api
) -> None:
    api: Api = request.getfixturevalue(role)
    passed = []
    for scope in sorted({scope for _, _, scope in OPERATIONS}):
        set_scopes(api, list_others(scope))
        for path, method in [(path, method) for path, method, needed in OPERATIONS if needed == scope]:
            answer = send_request(api, path, method)
            if answer.status != 403 or answer.error != "SCOPE_MISSING":
                passed.append((method, path, scope, answer.status))
    assert passed == []


def test_each_operation_is_for_tokens_or_for_the_console_alone(admin: Api) -> None:
    """What people decide in the console, such as what a program may do, no token of theirs may decide."""
    assert len(OPERATIONS) + len(BY_SESSION_ALONE) == len(SCOPED)
    for path, method, _ in BY_SESSION_ALONE:
        assert send_request(admin, path, method).status == 401, path


@pytest.mark.parametrize("role", ROLES)
def test_every_operation_accepts_a_token_that_has_its_scope_alone(
    role: str, request: pytest.FixtureRequest, owner: Api
) -> None:
    """What is then answered depends on the role; it is never a fault of the server."""
    api: Api = request.getfixturevalue(role)
    wrong = []
    for scope in sorted({scope for _, _, scope in OPERATIONS}):
        set_scopes(api, [scope])
        for path, method in [(path, method) for path, method, needed in OPERATIONS if needed == scope]:
            answer = send_request(api, path, method)
            if answer.status == 500 or (answer.status >= 400 and answer.body.get("error") == "SCOPE_MISSING"):
                wrong.append((method, path, scope, answer.status))
    assert wrong == []


def test_every_operation_refuses_who_is_not_signed_in(anonymous: Api, owner: Api) -> None:
    passed = []
    for path, method, _ in OPERATIONS:
        answer = send_request(anonymous, path, method)
        if answer.status != 401:
            passed.append((method, path, answer.status))
    assert passed == []


def test_strangers_are_given_nothing_of_a_project_by_any_scope(stranger: Api, owner: Api) -> None:
    """Each read below the project answers 404 to who has no role in it. 400: a parameter is missing, which is checked
    first."""
    set_scopes(stranger, list(scopes.SCOPES))
    given = []
    for path, method, _ in OPERATIONS:
        if "{project_id}" in path and method == "get":
            answer = send_request(stranger, path, method)
            if answer.status not in (400, 404):
                given.append((path, answer.status))
    assert given == []
