"""Rules for passwords, second factors, sessions and the banner."""

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.test import Client

from apps.accounts import services
from apps.accounts.models import AuditEvent, User
from apps.common.clock import now
from apps.policies.enforcement import BEGAN, USED
from apps.policies.policy import Policy, get_policy, set_cached_policy
from tests.api.conftest import BASE, Answer, Api, make_user

pytestmark = pytest.mark.database

PASSWORD = "a long enough password"
BODY = {
    "passwordLength": 8, "secondFactor": "nobody", "tokensExempt": False, "sessionHours": 0, "idleMinutes": 0,
    "bannerTitleEn": "", "bannerTitleZh": "", "bannerTextEn": "", "bannerTextZh": "", "bannerRequired": False,
}  # fmt: skip
BANNER = {
    "bannerTitleEn": "Notice", "bannerTitleZh": "声明", "bannerTextEn": "Authorised use only.",
    "bannerTextZh": "仅限授权使用。",
}  # fmt: skip


@pytest.fixture(autouse=True)
def policy_as_stored() -> Iterator[None]:
    cache.clear()  # the counts of failed attempts
    yield
    set_cached_policy(Policy())


def change(api: Api, **values: Any) -> Answer:
    return api.put("/sign-in-policy", {**BODY, **values})


def open_browser(user: User) -> Client:
    browser = Client()
    assert browser.login(username=user.username, password=PASSWORD)
    return browser


def read(browser: Client, path: str = "/auth/me") -> tuple[int, str]:
    answer = browser.get(f"{BASE}{path}")
    return answer.status_code, json.loads(answer.content).get("error", "")


def get_user(api: Api) -> User:
    assert api.user
    return api.user


def add_factor(user: User) -> None:
    Authenticator.objects.create(user=user, type=Authenticator.Type.TOTP, data={"secret": "x"})


def test_administrators_read_and_change_the_rules_and_nobody_else_does(admin: Api, owner: Api, anonymous: Api) -> None:
    assert admin.get("/sign-in-policy").data["passwordLength"] == 8
    assert change(admin, passwordLength=12, sessionHours=8).data["sessionHours"] == 8
    assert admin.get("/sign-in-policy").data["passwordLength"] == 12
    event = AuditEvent.objects.get(action="sign-in-policy.change")
    assert event.data == {"fields": ["password_length", "session_hours"], "password_length": 12, "session_hours": 8}
    for method in (owner.get, lambda path: change(owner)):
        assert method("/sign-in-policy").status == 403
    assert anonymous.get("/sign-in-policy").status == 401


def test_values_are_bounded_and_a_banner_needs_both_languages(admin: Api) -> None:
    assert change(admin, passwordLength=7).status == 400
    assert change(admin, secondFactor="some").status == 400
    assert change(admin, sessionHours=-1).status == 400
    assert change(admin, bannerTextEn="x" * 10_001).status == 400
    assert change(admin, **{**BANNER, "bannerTextZh": ""}).problems == {"bannerTextZh": "BANNER_INCOMPLETE"}
    assert change(admin, bannerRequired=True).problems == {"bannerRequired": "BANNER_MISSING"}


def test_what_the_environment_sets_cannot_be_changed(admin: Api, settings: Any) -> None:
    settings.SIGN_IN_POLICY = {"second_factor": "administrators"}
    add_factor(get_user(admin))
    set_cached_policy(None)
    answer = admin.get("/sign-in-policy").data
    assert (answer["secondFactor"], answer["readonly"]) == ("administrators", ["secondFactor"])
    assert change(admin, secondFactor="nobody").problems == {"secondFactor": "POLICY_READONLY"}
    assert change(admin, secondFactor="administrators", passwordLength=10).data["passwordLength"] == 10


def test_new_passwords_are_as_long_as_the_rule_says_and_not_common(admin: Api) -> None:
    change(admin, passwordLength=14)
    browser = open_browser(make_user("lee"))
    for password, status in (("thirteen char", 400), ("1qaz2wsx3edc4rfv", 400), ("thirteen chars", 200)):
        answer = browser.post(
            "/_allauth/browser/v1/account/password/change",
            {"current_password": PASSWORD, "new_password": password},
            content_type="application/json",
        )
        assert answer.status_code in ((200, 401) if status == 200 else (status,)), answer.content
    assert not User.objects.get(username="lee").check_password(PASSWORD)


def test_who_lacks_a_required_second_factor_can_only_set_one_up(admin: Api) -> None:
    lee = make_user("lee")
    browser = open_browser(lee)
    assert read(browser) == (200, "")
    add_factor(get_user(admin))
    change(admin, secondFactor="everybody")
    assert read(browser) == (403, "SECOND_FACTOR_REQUIRED")
    assert read(browser, "/projects") == (403, "SECOND_FACTOR_REQUIRED")
    assert browser.get("/environments/dev-1/open").status_code == 403
    assert browser.get("/admin/").status_code == 403
    assert browser.get("/auth/second-factor.svg").status_code == 404
    answer = browser.get("/_allauth/browser/v1/account/authenticators/totp")
    assert answer.json()["meta"]["secret"]
    picture = browser.get("/auth/second-factor.svg")
    assert (picture.status_code, picture.headers["Content-Type"]) == (200, "image/svg+xml")
    add_factor(lee)
    assert read(browser) == (200, "")


def test_tokens_of_people_without_the_factor_end_unless_they_are_exempt(admin: Api, owner: Api) -> None:
    add_factor(get_user(admin))
    change(admin, secondFactor="everybody")
    assert owner.get("/auth/me").error == "SECOND_FACTOR_REQUIRED"
    change(admin, secondFactor="everybody", tokensExempt=True)
    assert owner.get("/auth/me").status == 200
    change(admin, secondFactor="administrators")
    assert owner.get("/auth/me").status == 200


def test_people_of_providers_and_service_accounts_need_none(admin: Api, owner: Api, project: Any) -> None:
    get_user(owner).set_unusable_password()
    get_user(owner).save()
    add_factor(get_user(admin))
    answer = change(admin, secondFactor="everybody")
    assert answer.data["withoutSecondFactor"] == {"administrators": 0, "everybody": 0}
    assert owner.get("/auth/me").status == 200
    get_user(owner).set_password(PASSWORD)
    get_user(owner).service_project = project
    get_user(owner).save()
    assert owner.get("/auth/me").status == 200


def give_password(user: User) -> None:
    user.set_password(PASSWORD)
    user.save()


def test_the_answer_counts_who_lacks_a_factor(admin: Api, owner: Api, colleague: Api) -> None:
    give_password(get_user(admin))
    assert admin.get("/sign-in-policy").data["withoutSecondFactor"] == {"administrators": 1, "everybody": 3}
    add_factor(get_user(owner))
    assert admin.get("/sign-in-policy").data["withoutSecondFactor"] == {"administrators": 1, "everybody": 2}


def test_a_sign_in_link_works_with_every_rule_and_leads_to_setting_up(admin: Api) -> None:
    path = services.create_sign_in_link(get_user(admin))
    give_password(get_user(admin))
    change(admin, secondFactor="everybody", bannerRequired=True, **BANNER)
    browser = Client()
    assert browser.get(path).status_code == 302
    assert read(browser) == (403, "BANNER_NOT_ACCEPTED")
    version = browser.get(f"{BASE}/auth/banner").json()["data"]["version"]
    answer = browser.post(f"{BASE}/auth/banner/accept", {"version": version}, content_type="application/json")
    assert answer.status_code == 200
    assert read(browser) == (403, "SECOND_FACTOR_REQUIRED")
    add_factor(get_user(admin))
    assert read(browser) == (200, "")


def test_a_session_ends_after_its_hours_however_much_it_is_used(admin: Api) -> None:
    lee = make_user("lee")
    browser = open_browser(lee)
    change(admin, sessionHours=8)
    assert read(browser)[0] == 200
    stored = Session.objects.get(pk=browser.session.session_key)
    assert now() + timedelta(hours=7) < stored.expire_date < now() + timedelta(hours=9)
    with mock.patch("apps.policies.enforcement.time.time", return_value=time.time() + 8 * 3600):
        assert read(browser)[0] == 401
    assert not Session.objects.filter(pk=stored.pk).exists()


def test_a_session_ends_when_it_is_not_used_and_goes_on_while_it_is(admin: Api) -> None:
    browser = open_browser(make_user("lee"))
    change(admin, idleMinutes=10)
    assert read(browser)[0] == 200
    began = browser.session[BEGAN]
    at = time.time()
    for minute in (9, 18, 27):
        with mock.patch("apps.policies.enforcement.time.time", return_value=at + 60 * minute):
            assert read(browser)[0] == 200
    assert browser.session[BEGAN] == began
    assert browser.session[USED] == pytest.approx(at + 27 * 60)
    with mock.patch("apps.policies.enforcement.time.time", return_value=at + 60 * 37):
        assert read(browser)[0] == 401


def test_the_banner_is_shown_to_everybody_in_their_language(admin: Api, anonymous: Api) -> None:
    assert anonymous.get("/auth/banner").data is None
    change(admin, **BANNER)
    assert anonymous.get("/auth/banner").data == {
        "title": "声明", "text": "仅限授权使用。", "required": False, "version": 1,
    }  # fmt: skip
    assert Api(lang="en").get("/auth/banner").data["title"] == "Notice"
    browser = open_browser(make_user("lee"))
    assert read(browser) == (200, "")


def test_a_required_banner_is_accepted_in_each_session_and_again_after_a_change(admin: Api, owner: Api) -> None:
    change(admin, bannerRequired=True, **BANNER)
    lee = make_user("lee")
    browser = open_browser(lee)
    assert read(browser) == (403, "BANNER_NOT_ACCEPTED")

    def accept(version: int) -> int:
        body = {"version": version}
        return browser.post(f"{BASE}/auth/banner/accept", body, content_type="application/json").status_code

    assert accept(7) == 409
    assert accept(1) == 200
    assert read(browser) == (200, "")
    event = AuditEvent.objects.get(action="banner.accept")
    assert (event.actor, event.data) == (lee, {"version": 1})
    change(admin, bannerRequired=True, **{**BANNER, "bannerTextEn": "Authorised use only!"})
    assert get_policy().banner_version == 2
    assert read(browser) == (403, "BANNER_NOT_ACCEPTED")
    assert read(open_browser(lee)) == (403, "BANNER_NOT_ACCEPTED")
    assert owner.get("/auth/me").status == 200, "tokens need not accept it"
    assert owner.post("/auth/banner/accept", {"version": 2}).error == "BANNER_FOR_SESSIONS"
