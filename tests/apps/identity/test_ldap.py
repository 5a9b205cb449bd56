"""Sign-in with passwords of a real directory: slapd, where it and django-auth-ldap are installed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.core.cache import cache
from django.test import Client

from apps.accounts.models import ApiToken, AuditEvent, Membership, Project, Role, User
from apps.common.clock import now
from apps.directory.models import RoleRule
from server.ldap_settings import LdapSettings
from tests.fakes.ldap import (
    GROUPS,
    PASSWORD,
    PEOPLE,
    ROOT_DN,
    ROOT_PASSWORD,
    SCHEMAS,
    SLAPD,
    Directory,
    serve_directory,
)

pytest.importorskip("django_auth_ldap")
pytestmark = [
    pytest.mark.database,
    pytest.mark.skipif(SLAPD is None or not SCHEMAS.is_dir(), reason="slapd is not installed"),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    with serve_directory(tmp_path_factory.mktemp("ldap")) as running:
        yield running


@pytest.fixture
def directory(served: Directory, settings: Any, monkeypatch: pytest.MonkeyPatch, db: None) -> Iterator[Directory]:
    """Return the directory with ada in the group ml and bob in none, known to the platform."""
    served.add_person("ada", mail="ada@example.org", givenName="Ada")
    served.add_person("bob")
    served.add_group("ml", "ada")
    monkeypatch.setenv("FERMI_LDAP_URI", served.uri)
    use(settings, served)
    cache.clear()
    yield served
    for dn in (f"cn=ml,{GROUPS}", f"uid=ada,{PEOPLE}", f"uid=bob,{PEOPLE}"):
        served.delete(dn)


def use(settings: Any, served: Directory, **values: Any) -> None:
    """Let the platform know the directory."""
    settings.LDAP = LdapSettings(
        **{
            "uri": served.uri,
            "bind_dn": ROOT_DN,
            "bind_password": ROOT_PASSWORD,
            "user_search": PEOPLE,
            "group_search": GROUPS,
            "ca_file": served.certificate,
            **values,
        }
    )
    local = "allauth.account.auth_backends.AuthenticationBackend"
    settings.AUTHENTICATION_BACKENDS = [local, settings.LDAP_BACKEND]


def sign_in(client: Client, username: str, password: str = PASSWORD) -> str:
    """Return the code of the refusal; "" if the person is signed in."""
    body = {"username": username, "password": password}
    answer = client.post("/_allauth/browser/v1/auth/login", body, content_type="application/json")
    assert answer.status_code in (200, 400, 401), answer.content
    return "" if answer.status_code == 200 else str(answer.json().get("errors", [{"code": "pending"}])[0]["code"])


def is_signed_in(client: Client) -> bool:
    return client.get("/api/v1/auth/me").status_code == 200


def make_rule() -> Project:
    project = Project.objects.create(id="ml", name="ml")
    RoleRule.objects.create(
        provider="ldap",
        claim="groups",
        pattern="ml",
        project=project,
        role=Role.MEMBER,
        created_at=now(),
        updated_at=now(),
    )
    return project


def list_roles(username: str) -> list[tuple[str, str]]:
    return list(Membership.objects.filter(user__username=username).values_list("project_id", "role"))


def test_a_person_of_the_directory_gets_an_account_and_the_role_of_the_group(
    client: Client, directory: Directory
) -> None:
    make_rule()
    assert sign_in(client, "ada") == ""
    me = client.get("/api/v1/auth/me").json()["data"]
    assert me["username"] == "ada"
    assert list_roles("ada") == [("ml", "member")]
    account = SocialAccount.objects.get()
    assert account.extra_data["groups"] == ["ml"]
    assert account.extra_data["dn"] == f"uid=ada,{PEOPLE}"
    assert account.user.email == "ada@example.org"
    assert not account.user.has_usable_password()
    assert sign_in(Client(), "ADA") == ""
    assert User.objects.count() == 1


@pytest.mark.parametrize("password", ["wrong", " ", "", "*", "\x00"])
def test_a_wrong_or_an_empty_password_is_refused(client: Client, directory: Directory, password: str) -> None:
    assert sign_in(client, "ada", password) != ""
    assert not is_signed_in(client)
    assert not User.objects.exists()


@pytest.mark.parametrize(
    "name",
    [
        "*",
        "a*",
        "ada)(uid=*",
        "*)(objectClass=*",
        "ada)(|(uid=*",
        "\\61da",
        f"ada,{PEOPLE}",
        "ada\\2a",
        "(",
        "ada)",
        "nobody",
    ],
)
def test_a_name_is_never_part_of_a_filter(client: Client, directory: Directory, name: str) -> None:
    assert sign_in(client, name) == "username_password_mismatch"
    assert not User.objects.exists()


def test_a_local_account_of_the_same_name_is_not_opened(client: Client, directory: Directory) -> None:
    User.objects.create_user("Ada")
    assert sign_in(client, "ada") == "identity_ldap_name_taken"
    User.objects.update(username="other", email="ada@example.org")
    assert sign_in(client, "ada") == "identity_email_taken"
    assert not is_signed_in(client)
    assert not SocialAccount.objects.exists()


def test_local_passwords_still_count(client: Client, directory: Directory) -> None:
    User.objects.create_user("grace", password="a password of her own")
    assert sign_in(client, "grace", "a password of her own") == ""


def test_only_the_directorys_passwords_count_where_local_accounts_are_off(
    client: Client, directory: Directory, settings: Any
) -> None:
    User.objects.create_user("grace", password="a password of her own")
    settings.LOCAL_ACCOUNTS = False
    assert sign_in(client, "grace", "a password of her own") == "username_password_mismatch"
    assert sign_in(client, "ada") == ""
    shown = client.get("/api/v1/auth/providers").json()["data"]
    assert (shown["localAccounts"], shown["passwords"], shown["providers"]) == (False, True, [])


def test_a_person_of_the_directory_gets_no_second_password(client: Client, directory: Directory) -> None:
    sign_in(client, "ada")
    body = {"new_password": "a password that stays when the directory's goes"}
    answer = client.post("/_allauth/browser/v1/account/password/change", body, content_type="application/json")
    assert answer.status_code == 400, answer.content
    assert answer.json()["errors"][0]["code"] == "password_elsewhere"
    assert not User.objects.get().has_usable_password()


def test_a_second_factor_is_needed_behind_the_directorys_password(client: Client, directory: Directory) -> None:
    sign_in(Client(), "ada")
    Authenticator.objects.create(
        user=User.objects.get(), type=Authenticator.Type.TOTP, data={"secret": "JBSWY3DPEHPK3PXP"}
    )
    assert sign_in(client, "ada") == "pending"
    assert not is_signed_in(client)


def test_a_deactivated_person_stays_out_and_an_open_session_ends(client: Client, directory: Directory) -> None:
    sign_in(client, "ada")
    User.objects.update(is_active=False)
    assert not is_signed_in(client)
    assert sign_in(Client(), "ada") == "identity_user_inactive"


def test_nothing_is_sent_without_tls(client: Client, directory: Directory, settings: Any, tmp_path: Path) -> None:
    from tests.fakes.ldap import write_certificate

    write_certificate(tmp_path)
    use(settings, directory, ca_file=str(tmp_path / "certificate.pem"))
    assert sign_in(client, "ada") == "identity_ldap_silent"
    use(settings, directory, ca_file="")
    assert sign_in(client, "ada") == "identity_ldap_silent"
    use(settings, directory, start_tls=False)
    assert sign_in(client, "ada") == ""


def test_a_directory_that_does_not_answer_is_no_wrong_password(
    client: Client, directory: Directory, settings: Any
) -> None:
    use(settings, directory, uri="ldap://127.0.0.1:9")
    assert sign_in(client, "ada") == "identity_ldap_silent"
    use(settings, directory, bind_password="changed")
    assert sign_in(client, "ada") == "identity_ldap_silent"


def test_a_directory_may_let_in_only_people_with_an_account(
    client: Client, directory: Directory, settings: Any
) -> None:
    use(settings, directory, create_users=False)
    assert sign_in(client, "ada") == "identity_user_unknown"


def test_a_name_that_is_given_to_somebody_else_opens_a_former_persons_account_no_more(
    client: Client, directory: Directory
) -> None:
    sign_in(Client(), "ada")
    directory.delete(f"uid=ada,{PEOPLE}")
    directory.add_person("ada")
    assert sign_in(client, "ada") == "identity_ldap_name_taken"


def test_a_lost_group_takes_the_role_at_the_next_recheck(client: Client, directory: Directory) -> None:
    from apps.identity.ldap.recheck import recheck_people

    make_rule()
    sign_in(client, "ada")
    assert recheck_people() == 1
    assert list_roles("ada") == [("ml", "member")]
    directory.remove_member("ml", "ada")
    recheck_people()
    assert list_roles("ada") == []
    assert is_signed_in(client)


def test_a_person_who_is_gone_loses_sessions_tokens_and_roles_once(client: Client, directory: Directory) -> None:
    from apps.identity.ldap.recheck import recheck_people

    make_rule()
    sign_in(client, "ada")
    user = User.objects.get()
    ApiToken.objects.create(user=user, name="laptop")
    directory.delete(f"uid=ada,{PEOPLE}")
    for _ in range(2):
        recheck_people()
        assert (is_signed_in(client), ApiToken.objects.count(), list_roles("ada")) == (False, 0, [])
    assert AuditEvent.objects.filter(action="access.end").count() == 1
    directory.add_person("ada")


def test_a_linked_account_is_opened_and_stays_until_its_person_has_signed_in(
    client: Client, directory: Directory
) -> None:
    from apps.identity.ldap.directory import find_person
    from apps.identity.ldap.recheck import recheck_people

    user = User.objects.create_user("ada")
    ApiToken.objects.create(user=user, name="laptop")
    person = find_person("ada")
    assert person is not None
    SocialAccount.objects.create(user=user, provider="ldap", uid=person.uid, extra_data={})
    recheck_people()
    assert ApiToken.objects.count() == 1
    assert sign_in(client, "ada") == ""
    assert SocialAccount.objects.get().extra_data["groups"] == ["ml"]


def test_while_the_directory_does_not_answer_all_stay(client: Client, directory: Directory, settings: Any) -> None:
    from apps.identity.ldap.recheck import recheck_people

    sign_in(client, "ada")
    use(settings, directory, uri="ldap://127.0.0.1:9")
    assert recheck_people() == 0
    assert is_signed_in(client)
    assert SocialAccount.objects.get().extra_data["groups"] == ["ml"]


def test_administrators_see_the_directory_among_the_providers(client: Client, directory: Directory) -> None:
    client.force_login(
        User.objects.create_superuser("root"), backend="allauth.account.auth_backends.AuthenticationBackend"
    )
    (shown,) = client.get("/api/v1/identity-providers").json()["data"]["items"]
    assert (shown["id"], shown["kind"], shown["readonly"]) == ("ldap", "ldap", True)
    assert ROOT_PASSWORD not in str(shown)
    assert client.post("/api/v1/identity-providers/ldap/trial", {}, content_type="application/json").status_code == 404
