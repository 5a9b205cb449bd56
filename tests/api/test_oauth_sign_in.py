"""`fermi login` in the browser and by a code, against the platform's endpoints."""

import threading
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from django.core.cache import cache
from django.test import Client

from apps.accounts.models import ApiToken
from fermi.client import oauth
from fermi.client.errors import NotAuthenticatedError
from tests.api.conftest import Api
from tests.api.test_oauth import Browser, get_status, read_params

pytestmark = pytest.mark.database
URL = "http://testserver"


@pytest.fixture(autouse=True)
def _send_to_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()

    def post(url: str, *, data: dict[str, str], timeout: float) -> httpx.Response:
        body = httpx.Request("POST", url, data=data).content
        answer = Client().post(urlsplit(url).path, body, content_type="application/x-www-form-urlencoded")
        return httpx.Response(answer.status_code, content=answer.content)

    monkeypatch.setattr(httpx, "post", post)


def visit(address: str) -> threading.Thread:
    thread = threading.Thread(target=httpx.get, args=(address,), daemon=True)
    thread.start()
    return thread


def approve(browser: Browser, address: str, **choice: Any) -> None:
    query = urlsplit(address).query
    answer = browser.post("authorizations", query=query, **{"approve": True, "scopes": ["all"], **choice})
    visit(answer.json()["data"]["redirect"])


def test_the_browser_brings_the_token(owner: Api) -> None:
    token = oauth.sign_in_in_browser(URL, lambda address: approve(Browser(owner.user), address))
    assert get_status(token) == 200
    oauth.revoke_token(URL, token)
    assert get_status(token) == 401


def test_a_denial_in_the_browser_ends_the_sign_in(owner: Api) -> None:
    with pytest.raises(NotAuthenticatedError) as error:
        oauth.sign_in_in_browser(URL, lambda address: approve(Browser(owner.user), address, approve=False))
    assert error.value.code == "SIGN_IN_DENIED"


def test_another_state_and_other_paths_do_not_end_the_sign_in(owner: Api) -> None:
    def show(address: str) -> None:
        back = read_params(address)["redirect_uri"]
        visit(f"{back}?code=forged&state=forged")
        visit(back.replace("/callback", "/favicon.ico"))
        approve(Browser(owner.user), address)

    assert get_status(oauth.sign_in_in_browser(URL, show)) == 200


def test_nobody_comes_to_the_browser() -> None:
    with pytest.raises(NotAuthenticatedError) as error:
        oauth.sign_in_in_browser(URL, lambda _: None, wait_seconds=0.01)
    assert error.value.code == "SIGN_IN_TIMED_OUT"


@pytest.mark.parametrize(("approve", "code"), [(True, ""), (False, "SIGN_IN_DENIED")])
def test_a_code_brings_the_token_or_the_denial(owner: Api, approve: bool, code: str) -> None:
    prompt, slept = oauth.begin_device_sign_in(URL), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            Browser(owner.user).post("devices", code=prompt.user_code, approve=approve, scopes=["all"])
            key = f"allauth.idp.oidc.device_code[{prompt.device_code}]"
            cache.set(key, {**cache.get(key), "last_poll_at": 0}, 600)

    if approve:
        assert get_status(oauth.wait_for_device_sign_in(URL, prompt, sleep)) == 200
        assert ApiToken.objects.get(name="Fermi CLI").user == owner.user
    else:
        with pytest.raises(NotAuthenticatedError) as error:
            oauth.wait_for_device_sign_in(URL, prompt, sleep)
        assert error.value.code == code
    assert slept == [5.0, 5.0, 10.0]


def test_a_code_that_expired_is_told_so() -> None:
    prompt = oauth.begin_device_sign_in(URL)
    cache.clear()
    with pytest.raises(NotAuthenticatedError) as error:
        oauth.wait_for_device_sign_in(URL, prompt, lambda _: None)
    assert error.value.code == "SIGN_IN_EXPIRED"
