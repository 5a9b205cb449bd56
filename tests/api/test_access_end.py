"""The end of a person's access: sessions and tokens go, tasks and rights stay."""

from datetime import timedelta

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.test import Client

from apps.accounts import services
from apps.accounts.models import ApiToken, AuditEvent, Membership, Project, SignInLink
from apps.accounts.revocation import end_access
from apps.common.clock import now
from apps.proxy.authorizations import Authorization, filter_valid
from tests.api.conftest import Api

pytestmark = pytest.mark.database


def sign_in(api: Api) -> Client:
    browser = Client(raise_request_exception=False)
    assert browser.get(services.create_sign_in_link(api.user)).status_code == 302
    assert is_signed_in(browser)
    return browser


def is_signed_in(browser: Client) -> bool:
    return browser.get("/api/v1/auth/me").status_code == 200


def test_all_sessions_and_tokens_of_a_person_end_at_once(colleague: Api, owner: Api) -> None:
    first, second, other = sign_in(colleague), sign_in(colleague), sign_in(owner)
    ended = end_access(colleague.user, "left")
    assert (ended.tokens, is_signed_in(first), is_signed_in(second)) == (1, False, False)
    assert colleague.get("/auth/me").status == 401
    assert is_signed_in(other)
    assert owner.get("/auth/me").status == 200


def test_a_session_that_no_row_tells_of_ends_too(colleague: Api) -> None:
    browser = sign_in(colleague)
    UserSession.objects.all().delete()
    end_access(colleague.user, "left")
    assert Session.objects.filter(expire_date__gt=now()).exists(), "it is stored, and worth nothing"
    assert not is_signed_in(browser)


def test_a_person_whose_access_ended_may_sign_in_again(colleague: Api) -> None:
    end_access(colleague.user, "lost laptop")
    again = sign_in(colleague)
    assert is_signed_in(again)
    end_access(colleague.user, "lost laptop")
    assert not is_signed_in(again)


def test_a_session_from_before_the_first_end_is_valid_after_the_upgrade(colleague: Api) -> None:
    """The hash of epoch 0 is the one that Django writes."""
    browser = sign_in(colleague)
    colleague.user.refresh_from_db()
    assert colleague.user.session_epoch == 0
    assert is_signed_in(browser)


def test_connections_into_environments_lose_their_authorization(
    colleague: Api, environments: dict, project: Project
) -> None:
    browser = sign_in(colleague)
    token = ApiToken.objects.get(user=colleague.user)
    user = colleague.user.pk
    by_session = Authorization(user, project.pk, "env-001", session=browser.session.session_key)
    by_token = Authorization(user, project.pk, "env-001", token=token.pk)
    assert filter_valid([by_session, by_token]) == {by_session, by_token}
    UserSession.objects.all().delete()
    end_access(colleague.user, "left", tokens=None)
    assert filter_valid([by_session, by_token]) == {by_token}
    end_access(colleague.user, "left")
    assert filter_valid([by_session, by_token]) == set()


def test_tokens_of_one_project_end_alone(colleague: Api, project: Project, other_project: Project) -> None:
    for name, projects in (("this", [project.pk]), ("both", [project.pk, other_project.pk]), ("any", None)):
        ApiToken.objects.create(user=colleague.user, expiry=None, name=name, projects=projects)
    ended = end_access(colleague.user, "left the project", sessions=False, tokens=project)
    assert ended.tokens == 1
    assert set(ApiToken.objects.filter(user=colleague.user).values_list("name", flat=True)) == {"tests", "both", "any"}


def test_unused_links_of_the_person_end(colleague: Api) -> None:
    link = services.create_sign_in_link(colleague.user)
    end_access(colleague.user, "left")
    assert Client().get(link).status_code == 410
    assert not SignInLink.objects.exists()


def test_the_trail_says_why_and_how_many(colleague: Api, owner: Api) -> None:
    sign_in(colleague)
    ApiToken.objects.create(user=colleague.user, expiry=timedelta(days=-1), name="expired")
    end_access(colleague.user, "left", actor=owner.user)
    event = AuditEvent.objects.get(action="access.end")
    assert (event.actor, event.target) == (owner.user, "colleague")
    assert (event.data["reason"], event.data["tokens"]) == ("left", 1)
    assert Membership.objects.filter(user=colleague.user).exists()
