"""A provider is asked again and again whether it still vouches for the people who signed in by it."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.test import Client

from apps.accounts.models import ApiToken, AuditEvent, Membership, Project, User
from apps.common import wakeups
from apps.common.clock import now
from apps.directory.models import RoleRule
from apps.identity import recheck, tasks
from apps.identity.models import IdentityProvider, ProviderGrant, ProviderRecheck
from apps.identity.oidc import description, renewal, signed_token
from apps.notices import periodic_checks
from apps.notices.models import Incident
from tests.api.test_identity_sign_in import is_signed_in, make_provider, return_to, sign_in, start
from tests.fakes.openid import OpenIdServer, serve_openid

pytestmark = pytest.mark.database

OFFLINE = {"scopes": ["offline_access"]}


@pytest.fixture
def server() -> Iterator[OpenIdServer]:
    signed_token.cache.clear()
    description.clear_cache()
    with serve_openid() as running:
        yield running


@pytest.fixture
def provider(db: None, server: OpenIdServer) -> IdentityProvider:
    return make_provider("sso", server, **OFFLINE)


@pytest.fixture
def browser(client: Client, server: OpenIdServer, provider: IdentityProvider) -> Client:
    server.claims["groups"] = ["ml"]
    project = Project.objects.create(pk="project-x", name="x")
    RoleRule.objects.create(
        provider="sso",
        claim="groups",
        pattern="ml",
        project=project,
        role="member",
        created_at=now(),
        updated_at=now(),
    )
    sign_in(client, server)
    assert list_roles() == ["member"]
    return client


def list_roles() -> list[str]:
    return list(Membership.objects.values_list("role", flat=True))


def run_due() -> list[str]:
    """Let the grants and the providers be due, and do what the worker does. Return the providers that were asked."""
    ProviderGrant.objects.update(due_at=now())
    ProviderRecheck.objects.update(due_at=now())
    asked = recheck.list_due_providers()
    for provider_id in asked:
        tasks.recheck_provider(provider_id)
    return asked


def test_a_group_that_is_lost_at_the_provider_takes_the_role(browser: Client, server: OpenIdServer) -> None:
    assert run_due() == ["sso"]
    assert list_roles() == ["member"]
    server.claims["groups"] = []
    run_due()
    assert list_roles() == []
    assert SocialAccount.objects.get().extra_data["id_token"]["groups"] == []
    assert is_signed_in(browser), "the person is still known there"


def test_a_group_that_is_gained_at_the_provider_gives_the_role(browser: Client, server: OpenIdServer) -> None:
    server.claims["groups"] = []
    run_due()
    server.claims["groups"] = ["ml"]
    run_due()
    assert list_roles() == ["member"]


def test_groups_of_userinfo_are_read_where_no_id_token_is_renewed(browser: Client, server: OpenIdServer) -> None:
    server.renews_id_token = False
    server.userinfo = {"groups": ["other"]}
    run_due()
    assert list_roles() == []
    server.userinfo = {}
    run_due()
    assert "groups" not in SocialAccount.objects.get().extra_data["id_token"]


def test_claims_of_the_former_token_stay_only_where_userinfo_does_not_say_them() -> None:
    known = {"id_token": {"sub": "u", "groups": ["a"], "dept": "d"}, "userinfo": {"sub": "u", "mail": "m"}}
    merged = renewal.merge_claims(known, None, {"sub": "u", "groups": ["b"]})
    assert merged == {"id_token": {"sub": "u", "dept": "d"}, "userinfo": {"sub": "u", "groups": ["b"]}}
    assert renewal.merge_claims(known, None, None) == known
    assert renewal.merge_claims(known, {"sub": "u"}, None) == {"id_token": {"sub": "u"}}


def test_who_has_left_loses_sessions_and_tokens(browser: Client, server: OpenIdServer) -> None:
    user = User.objects.get()
    ApiToken.objects.create(user=user)
    server.left.add("u-1")
    run_due()
    assert not is_signed_in(browser)
    assert not ApiToken.objects.exists()
    assert not ProviderGrant.objects.exists()
    event = AuditEvent.objects.get(action="access.end")
    assert event.data["reason"] == "the provider no longer vouches"
    assert (event.data["sessions"], event.data["tokens"]) == (1, 1)


def test_tokens_stay_where_the_provider_is_set_so(browser: Client, server: OpenIdServer) -> None:
    IdentityProvider.objects.update(settings={"server_url": server.url, **OFFLINE, "end_tokens": False})
    ApiToken.objects.create(user=User.objects.get())
    server.left.add("u-1")
    run_due()
    assert not is_signed_in(browser)
    assert ApiToken.objects.count() == 1


def test_a_provider_that_does_not_answer_ends_nothing_and_is_asked_less_and_less(
    browser: Client, server: OpenIdServer, caplog: pytest.LogCaptureFixture
) -> None:
    pauses = []
    server.failure = 503
    for _ in range(3):
        run_due()
        row = ProviderRecheck.objects.get()
        pauses.append(round((row.due_at - now()).total_seconds() / 15))
    assert pauses == [1, 2, 4]
    assert (row.failures, "503" in row.error, row.silent_since is not None) == (3, True, True)
    assert is_signed_in(browser)
    assert list_roles() == ["member"]
    assert "cannot be asked who may stay" in caplog.text
    assert recheck.list_due_providers() == [], "it is left alone meanwhile"
    server.failure = 0
    run_due()
    row.refresh_from_db()
    assert (row.failures, row.silent_since, row.error) == (0, None, "")


def test_a_wrong_secret_of_the_platform_ends_nothing(browser: Client, server: OpenIdServer) -> None:
    server.failure = 401
    server.secret = "changed"
    run_due()
    assert is_signed_in(browser)


def test_a_silent_provider_does_not_hold_up_another(browser: Client, server: OpenIdServer) -> None:
    with serve_openid() as other:
        make_provider("other", other, **OFFLINE)
        other.claims |= {"sub": "u-2", "preferred_username": "grace"}
        second = Client()
        return_to(second, other.authorize(start(second, "other")), "other")
        server.failure = 503
        other.left.add("u-2")
        assert run_due() == ["other", "sso"]
    assert [is_signed_in(browser), is_signed_in(second)] == [True, False]
    assert list(ProviderRecheck.objects.filter(failures=0).values_list("provider", flat=True)) == ["other"]


def test_another_issuer_that_has_the_id_now_gets_no_token_of_the_former_one(
    browser: Client, server: OpenIdServer
) -> None:
    with serve_openid() as other:
        IdentityProvider.objects.update(settings={"server_url": other.url, **OFFLINE})
        other.refresh_tokens |= server.refresh_tokens
        other.claims |= {"sub": "u-1", "groups": []}
        run_due()
        assert (other.refreshes, list(other.refresh_tokens)) == (0, list(server.refresh_tokens))
    assert (list_roles(), is_signed_in(browser)) == (["member"], True)
    assert "another issuer" in ProviderRecheck.objects.get().error
    IdentityProvider.objects.update(settings={"server_url": server.url, **OFFLINE})
    server.claims["groups"] = []
    run_due()
    assert list_roles() == []


def test_an_answer_that_was_lost_ends_sessions_and_keeps_tokens(
    browser: Client, server: OpenIdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ApiToken.objects.create(user=User.objects.get())

    class Killed(BaseException): ...

    def renew_and_die(*args: Any) -> None:
        renew(*args)
        raise Killed

    renew = renewal.renew_grant
    with monkeypatch.context() as patch:
        patch.setattr(renewal, "renew_grant", renew_and_die)
        with pytest.raises(Killed):
            run_due()
    assert is_signed_in(browser)
    run_due()
    assert not is_signed_in(browser), "the provider has replaced the token that is stored"
    assert ApiToken.objects.count() == 1


def test_a_pass_that_was_killed_before_it_asked_loses_nothing(
    browser: Client, server: OpenIdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException): ...

    def die(*args: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(renewal, "renew_grant", die)
        with pytest.raises(Killed):
            run_due()
    server.claims["groups"] = []
    run_due()
    assert is_signed_in(browser)
    assert list_roles() == []


def test_a_sign_in_during_a_pass_counts(browser: Client, server: OpenIdServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_after_sign_in(*args: Any) -> None:
        sign_in(browser, server)
        raise renewal.GrantRefusedError("revoked")

    with monkeypatch.context() as patch:
        patch.setattr(renewal, "renew_grant", refuse_after_sign_in)
        run_due()
    assert is_signed_in(browser)
    run_due()
    assert is_signed_in(browser)
    assert server.refreshes == 1


def test_two_processes_ask_a_provider_once(browser: Client, server: OpenIdServer) -> None:
    run_due()
    ProviderGrant.objects.update(due_at=now())
    ProviderRecheck.objects.update(due_at=now() + timedelta(seconds=60))
    recheck.recheck_provider("sso")
    assert server.refreshes == 1


def test_a_renewed_token_about_another_person_counts_for_nobody(browser: Client, server: OpenIdServer) -> None:
    server.claims |= {"sub": "u-2", "groups": []}
    run_due()
    assert list_roles() == ["member"]
    assert is_signed_in(browser)


def test_renewed_claims_that_cannot_be_stored_change_nothing(browser: Client, server: OpenIdServer) -> None:
    server.claims |= {"name": "a\x00", "groups": []}
    run_due()
    assert (list_roles(), is_signed_in(browser)) == (["member"], True)
    assert ProviderRecheck.objects.get().error == "", "of one person alone"


def test_a_renewed_token_of_another_signer_counts_for_nobody(browser: Client, server: OpenIdServer) -> None:
    published = server.list_keys()
    server.list_keys = lambda: published  # type: ignore[method-assign]
    server.rotate_key()
    server.claims["groups"] = []
    run_due()
    assert list_roles() == ["member"]


def test_a_disabled_provider_is_not_asked_and_takes_nothing(browser: Client, server: OpenIdServer) -> None:
    IdentityProvider.objects.update(enabled=False)
    server.left.add("u-1")
    run_due()
    assert is_signed_in(browser)
    assert not recheck.list_due_providers()


def test_the_token_is_stored_encrypted_and_only_where_it_was_asked_for(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    sign_in(client, server)
    [token] = server.refresh_tokens
    stored = ProviderGrant.objects.get().refresh_token
    assert token not in stored
    ProviderGrant.objects.all().delete()
    IdentityProvider.objects.update(settings={"server_url": server.url})
    sign_in(Client(), server)
    assert not ProviderGrant.objects.exists()


def test_no_token_of_the_provider_is_in_a_session_that_waits_for_the_second_factor(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    user = User.objects.create_user("ada")
    SocialAccount.objects.create(user=user, provider="sso", uid="u-1")
    Authenticator.objects.create(user=user, type=Authenticator.Type.TOTP, data={"secret": "JBSWY3DPEHPK3PXP"})
    sign_in(client, server)
    assert not is_signed_in(client)
    content = str(dict(client.session))
    assert "sociallogin" in content
    [token] = server.refresh_tokens
    assert token not in content
    assert not ProviderGrant.objects.exists(), "nobody was let in"


def test_it_can_be_switched_off(browser: Client, server: OpenIdServer, settings: Any) -> None:
    settings.IDENTITY_RECHECK_SECONDS = 0
    server.left.add("u-1")
    assert run_due() == []
    tasks.recheck_provider("sso")
    assert is_signed_in(browser)


def test_a_grant_is_renewed_once_in_the_interval(browser: Client, server: OpenIdServer, settings: Any) -> None:
    run_due()
    recheck.recheck_provider("sso")
    assert server.refreshes == 1
    wait = ProviderGrant.objects.get().due_at - now()
    assert timedelta(seconds=290) < wait <= timedelta(seconds=settings.IDENTITY_RECHECK_SECONDS)


def test_each_due_provider_gets_a_message_of_its_own(
    browser: Client, server: OpenIdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, ...]] = []
    monkeypatch.setattr(wakeups, "enqueue_task", lambda *message: sent.append(message))
    tasks.recheck_due_providers()
    assert sent == []
    ProviderGrant.objects.update(due_at=now())
    tasks.recheck_due_providers()
    assert sent == [("identity.recheck", "sso")]


def test_a_deleted_account_takes_its_grant_along(browser: Client) -> None:
    SocialAccount.objects.all().delete()
    assert not ProviderGrant.objects.exists()


def test_operators_are_notified_of_a_provider_that_stays_silent(browser: Client, server: OpenIdServer) -> None:
    server.failure = 503
    run_due()
    periodic_checks.run_checks()
    assert not Incident.objects.filter(kind="provider_silent").exists(), "it is silent since a moment"
    ProviderRecheck.objects.update(silent_since=now() - timedelta(minutes=11))
    periodic_checks.run_checks()
    incident = Incident.objects.get(kind="provider_silent")
    assert (incident.key, incident.over_at) == ("sso", None)
    assert "503" in incident.params["error"]
    server.failure = 0
    run_due()
    periodic_checks.run_checks()
    incident.refresh_from_db()
    assert incident.over_at is not None
