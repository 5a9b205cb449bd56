"""Where people are signed in, and how that ends."""

import pytest
from django.test import Client

from apps.accounts import services, sessions
from apps.accounts.models import AuditEvent
from tests.api.conftest import Api

pytestmark = pytest.mark.database


@pytest.fixture(autouse=True)
def forgotten() -> None:
    sessions._noted.clear()


def sign_in(api: Api, device: str = "Firefox") -> Client:
    browser = Client(raise_request_exception=False, headers={"User-Agent": device})
    assert browser.get(services.create_sign_in_link(api.user)).status_code == 302
    browser.get("/api/v1/auth/me")
    return browser


def list_own(browser: Client) -> list[dict]:
    return browser.get("/api/v1/sessions").json()["data"]["items"]


def test_a_person_sees_each_browser_and_which_one_this_is(colleague: Api) -> None:
    first, second = sign_in(colleague, "Firefox"), sign_in(colleague, "Chrome")
    assert {(item["device"], item["current"]) for item in list_own(first)} == {("Firefox", True), ("Chrome", False)}
    assert {(item["device"], item["current"]) for item in list_own(second)} == {("Firefox", False), ("Chrome", True)}
    assert list_own(first)[0]["address"] == "127.0.0.1"
    assert first.session.session_key not in str(list_own(first)), "a key would be the session"


def test_a_browser_is_named_in_words_and_by_what_it_calls_itself(colleague: Api) -> None:
    user_agent = "Mozilla/5.0 (Windows NT 10.0; rv:144.0) Gecko/20100101 Firefox/144.0"
    [shown] = list_own(sign_in(colleague, user_agent))
    assert (shown["device"], shown["userAgent"]) == ("Firefox 144 · Windows", user_agent)


def test_a_person_ends_one_session_and_the_others_go_on(colleague: Api) -> None:
    first, second = sign_in(colleague, "Firefox"), sign_in(colleague, "Chrome")
    lost = next(item["id"] for item in list_own(second) if item["device"] == "Firefox")
    assert colleague.delete(f"/sessions/{lost}").status == 200
    assert first.get("/api/v1/auth/me").status_code == 401
    assert [item["device"] for item in list_own(second)] == ["Chrome"]
    assert AuditEvent.objects.get(action="session.end").target == "colleague"


def test_sessions_of_others_do_not_exist_for_a_person(colleague: Api, owner: Api) -> None:
    browser = sign_in(owner)
    assert colleague.get("/sessions").data["items"] == []
    [theirs] = list_own(browser)
    for unknown in (theirs["id"], "x", "9" * 18, "9" * 400, "-1", "²"):
        assert colleague.delete(f"/sessions/{unknown}").status == 404
    assert browser.get("/api/v1/auth/me").status_code == 200


def test_signing_out_everywhere_keeps_the_tokens_unless_they_are_to_go(colleague: Api) -> None:
    browsers = [sign_in(colleague), sign_in(colleague)]
    assert colleague.post("/sessions/end", {"tokens": False}).data == {"sessions": 2, "tokens": 0}
    assert [browser.get("/api/v1/auth/me").status_code for browser in browsers] == [401, 401]
    assert colleague.get("/auth/me").status == 200
    assert colleague.post("/sessions/end", {"tokens": True}).data == {"sessions": 0, "tokens": 1}
    assert colleague.get("/auth/me").status == 401


def test_sessions_of_a_former_password_are_not_listed(colleague: Api) -> None:
    sign_in(colleague)
    colleague.user.set_password("another long password")
    colleague.user.save(update_fields=["password"])
    assert colleague.get("/sessions").data["items"] == []


def test_the_last_use_is_not_written_for_each_request(colleague: Api) -> None:
    browser = sign_in(colleague)
    [before] = list_own(browser)
    [after] = list_own(browser)
    assert before["lastSeenAt"] == after["lastSeenAt"]
    sessions._noted.clear()
    list_own(browser)
    assert list_own(browser)[0]["lastSeenAt"] > before["lastSeenAt"]


def test_a_session_that_was_signed_out_leaves_the_list(colleague: Api) -> None:
    browser = sign_in(colleague)
    assert len(colleague.get("/sessions").data["items"]) == 1
    browser.delete("/_allauth/browser/v1/auth/session")
    assert colleague.get("/sessions").data["items"] == []


def test_administrators_list_and_end_sessions_of_a_person(admin: Api, colleague: Api) -> None:
    first, second = sign_in(colleague, "Firefox"), sign_in(colleague, "Chrome")
    listed = admin.get("/people/colleague/sessions").data["items"]
    lost = next(item["id"] for item in listed if item["device"] == "Firefox")
    assert admin.delete(f"/people/colleague/sessions/{lost}").status == 200
    assert (first.get("/api/v1/auth/me").status_code, second.get("/api/v1/auth/me").status_code) == (401, 200)
    assert admin.post("/people/colleague/sessions/end", {"tokens": True}).data == {"sessions": 1, "tokens": 1}
    assert colleague.get("/auth/me").status == 401
    assert AuditEvent.objects.get(action="access.end").actor == admin.user


def test_only_administrators_reach_sessions_of_others(owner: Api, colleague: Api, anonymous: Api) -> None:
    sign_in(colleague)
    for api, status in ((owner, 403), (anonymous, 401)):
        assert api.get("/people/colleague/sessions").status == status
        assert api.post("/people/colleague/sessions/end", {"tokens": True}).status == status
        assert api.delete("/people/colleague/sessions/1").status == status
    assert anonymous.get("/sessions").status == 401
