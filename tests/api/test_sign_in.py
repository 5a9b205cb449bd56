"""The console's way in: a password through allauth's headless API, or the link that the embedded start prints."""

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.core.management import call_command
from django.test import Client

from apps.accounts import services
from apps.accounts.models import AuditEvent, SignInLink, User
from apps.common.clock import now
from tests.api.conftest import make_user

pytestmark = pytest.mark.database

AUTH = "/_allauth/browser/v1/auth"
PASSWORD = "a long enough password"


@pytest.fixture
def browser() -> Client:
    """Checks CSRF, as a browser's server does."""
    cache.clear()  # the counts of failed attempts
    return Client(enforce_csrf_checks=True)


@pytest.fixture
def user(db: None) -> User:
    return make_user("lee")


def post(browser: Client, path: str, body: object, *, csrf: bool = True) -> object:
    cookie = browser.cookies.get("csrftoken")
    headers = {"X-CSRFToken": cookie.value} if cookie and csrf else {}
    return browser.post(path, body, content_type="application/json", headers=headers)


def sign_in(browser: Client, username: str = "lee", password: str = PASSWORD) -> object:
    browser.get(f"{AUTH}/session")
    return post(browser, f"{AUTH}/login", {"username": username, "password": password})


def test_a_password_signs_in_and_the_session_works(browser: Client, user: User) -> None:
    assert browser.get(f"{AUTH}/session").status_code == 401
    assert sign_in(browser).status_code == 200
    assert browser.get("/api/v1/auth/me").json()["data"]["username"] == "lee"
    assert browser.get(f"{AUTH}/session").json()["data"]["user"]["username"] == "lee"
    assert AuditEvent.objects.get(action="user.sign-in").data == {"by": "password"}


def test_a_wrong_password_does_not_sign_in(browser: Client, user: User) -> None:
    assert sign_in(browser, password="wrong").status_code == 400
    assert browser.get("/api/v1/auth/me").status_code == 401


def test_a_session_needs_the_csrf_token_to_change_anything(browser: Client, user: User) -> None:
    sign_in(browser)
    refused = post(browser, "/api/v1/tokens", {"name": "x"}, csrf=False)
    assert (refused.status_code, refused.json()["error"]) == (403, "CSRF_FAILED")
    assert post(browser, "/api/v1/tokens", {"name": "x"}).status_code == 201


def test_signing_out_ends_the_session(browser: Client, user: User) -> None:
    sign_in(browser)
    browser.delete(f"{AUTH}/session", headers={"X-CSRFToken": browser.cookies["csrftoken"].value})
    assert browser.get("/api/v1/auth/me").status_code == 401


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"[" * 8000 + b"]" * 8000, "BODY_TOO_DEEP"), (b'{"username":' + b"1" * 5000 + b"}", "PARSE_ERROR")],
    ids=["deep", "long number"],
)
def test_an_unreadable_sign_in_is_refused(browser: Client, user: User, body: bytes, code: str) -> None:
    browser.raise_request_exception = False
    browser.get(f"{AUTH}/session")
    answer = post(browser, f"{AUTH}/login", body)
    assert (answer.status_code, answer.json()["error"]) == (400, code)


@pytest.mark.parametrize("content_type", ["multipart/form-data; boundary=x", "application/x-www-form-urlencoded"])
def test_a_form_post_is_not_accepted_as_a_sign_in(browser: Client, user: User, content_type: str) -> None:
    browser.raise_request_exception = False
    browser.get(f"{AUTH}/session")
    headers = {"X-CSRFToken": browser.cookies["csrftoken"].value}
    assert browser.post(f"{AUTH}/login", b"--x--", content_type=content_type, headers=headers).status_code == 400


def test_forwarded_addresses_from_the_client_do_not_evade_the_rate_limit(browser: Client, user: User) -> None:
    browser.get(f"{AUTH}/session")
    cookie = {"X-CSRFToken": browser.cookies["csrftoken"].value}
    for number in range(6):
        said = {**cookie, "X-Forwarded-For": f"198.51.100.{number}", "Forwarded": f"for=198.51.100.{number}"}
        body = {"username": "lee", "password": "wrong"}
        answer = browser.post(f"{AUTH}/login", body, content_type="application/json", headers=said)
    assert answer.json()["errors"][0]["code"] == "too_many_login_attempts"


def test_several_wrong_passwords_block_even_the_right_one_for_a_while(browser: Client, user: User) -> None:
    for _ in range(5):
        assert sign_in(browser, password="wrong").status_code == 400
    locked = sign_in(browser)
    assert locked.status_code == 400
    assert locked.json()["errors"][0]["code"] == "too_many_login_attempts"
    assert locked.json()["errors"][0]["message"]


def test_accounts_cannot_be_created_unless_registration_is_open(browser: Client, db: None, settings: object) -> None:
    form = {"username": "new", "password": PASSWORD, "email": "new@example.org"}
    browser.get(f"{AUTH}/session")
    assert post(browser, f"{AUTH}/signup", form).status_code == 403
    settings.SIGNUP = True
    assert post(browser, f"{AUTH}/signup", form).status_code == 200


def test_the_admins_login_page_redirects_to_the_console(browser: Client, db: None) -> None:
    assert browser.get("/admin/login/?next=/admin/").headers["Location"] == "/sign-in?next=/admin/"


def test_a_link_signs_in_and_redirects_home(browser: Client, user: User) -> None:
    answer = browser.get(services.create_sign_in_link(user))
    assert (answer.status_code, answer.headers["Location"]) == (302, "/")
    assert browser.get("/api/v1/auth/me").json()["data"]["username"] == "lee"
    assert browser.get(f"{AUTH}/session").status_code == 200
    assert AuditEvent.objects.get().action == "user.sign-in-link"


@pytest.mark.parametrize(("asked", "name"), [([], "root"), (["lee"], "lee"), (["nobody"], None), (["away"], None)])
def test_a_link_is_made_by_a_command_on_the_platforms_machine(asked: list[str], name: str | None, user: User) -> None:
    User.objects.create_superuser("root")
    User.objects.filter(pk=make_user("away").pk).update(is_active=False)
    said = StringIO()
    call_command("login_link", *asked, stdout=said)
    made = json.loads(said.getvalue())
    if name is None:
        assert made == {"signInLink": None, "username": asked[0]}
        return
    assert made["username"] == name
    assert Client().get(made["signInLink"])["Location"] == "/"
    assert list(AuditEvent.objects.values_list("action", "target").order_by("pk")) == [
        ("user.sign-in-link.make", name), ("user.sign-in-link", name),
    ]  # fmt: skip


def test_sign_in_methods_are_public(browser: Client, db: None, settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    assert browser.get("/api/v1/auth/sign-in").json()["data"] == {"embedded": False}
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "url").write_text("http://127.0.0.1:8000")
    assert browser.get("/api/v1/auth/sign-in").json()["data"] == {"embedded": True}


def test_a_link_works_once(browser: Client, user: User) -> None:
    link = services.create_sign_in_link(user)
    browser.get(link)
    assert browser.get(link).headers["Location"] == "/", "the same browser is in already"
    second = Client().get(link, headers={"Accept-Language": "en"})
    assert second.status_code == 410
    assert "has been used" in second.content.decode()


def test_a_head_request_does_not_use_up_a_link(browser: Client, user: User) -> None:
    link = services.create_sign_in_link(user)
    assert browser.head(link).status_code == 405
    assert browser.get(link).status_code == 302


def test_a_link_expires(browser: Client, user: User) -> None:
    link = services.create_sign_in_link(user)
    SignInLink.objects.update(expires_at=now() - timedelta(seconds=1))
    assert browser.get(link).status_code == 410


def test_a_forged_link_is_refused(browser: Client, user: User) -> None:
    services.create_sign_in_link(user)
    assert browser.get("/auth/link/made-up").status_code == 410


def test_the_secret_of_a_link_is_not_stored(user: User) -> None:
    secret = services.create_sign_in_link(user).rsplit("/", 1)[1]
    assert secret not in str(vars(SignInLink.objects.get()))
