"""`/metrics` tells how much a platform is used and by which addresses: not to everybody who reaches it."""

import pytest
from django.test import Client
from pytest_django import Settings

from tests.api.conftest import Api


def scrape(token: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    response = Client(raise_request_exception=False).get("/metrics", headers=headers)
    return response.status_code, response.content.decode()


def test_nobody_in_particular_is_told_nothing() -> None:
    status, said = scrape()
    assert status == 401
    assert "NOT_AUTHENTICATED" in said
    assert "python_info" not in said


@pytest.mark.parametrize("who", ["viewer", "owner"])
def test_who_is_no_administrator_is_refused(who: str, request: pytest.FixtureRequest) -> None:
    person: Api = request.getfixturevalue(who)
    status, said = scrape(person.token)
    assert status == 403
    assert "python_info" not in said


def test_an_administrators_token_opens_it(admin: Api) -> None:
    status, said = scrape(admin.token)
    assert status == 200
    assert "python_info" in said


def test_the_scrapers_own_token_opens_it_and_nothing_else(settings: Settings, admin: Api) -> None:
    settings.METRICS_TOKEN = "for the scraper"
    assert scrape("for the scraper")[0] == 200
    assert scrape("another")[0] == 401
    assert scrape()[0] == 401
    assert Api(token="for the scraper").get("/auth/me").status == 401


def test_without_a_scrapers_token_an_empty_one_is_none(settings: Settings) -> None:
    settings.METRICS_TOKEN = ""
    assert Client().get("/metrics", headers={"Authorization": "Bearer "}).status_code == 401
