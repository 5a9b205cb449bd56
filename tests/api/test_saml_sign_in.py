"""Sign-in by a SAML provider, from the button to the role, and what is refused on the way."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount
from django.contrib.sessions.models import Session
from django.test import Client
from onelogin.saml2.constants import OneLogin_Saml2_Constants as Constants

from apps.accounts.models import AuditEvent, Membership, User
from apps.common.clock import now
from apps.directory.models import RoleRule
from apps.identity import environment
from apps.identity import saml_metadata as metadata
from apps.identity.models import IdentityProvider
from tests.api.conftest import Api
from tests.fakes.saml import ENTITY_ID, SSO_URL, SamlProvider, make_response, read_request

pytestmark = pytest.mark.database

HOST = "http://testserver"


@pytest.fixture(scope="module")
def idp() -> SamlProvider:
    return SamlProvider()


@pytest.fixture
def row(db: None, idp: SamlProvider) -> IdentityProvider:
    return make_provider("company", idp)


def make_provider(provider_id: str, idp: SamlProvider, **settings: Any) -> IdentityProvider:
    return IdentityProvider.objects.create(
        id=provider_id,
        kind="saml",
        name="Company",
        settings={**metadata.read_metadata(idp.metadata), **settings},
        created_at=now(),
        updated_at=now(),
    )


def get_consumer(provider_id: str = "company") -> str:
    return f"{HOST}/auth/saml/{provider_id}/acs/"


def start(client: Client, provider_id: str = "company", next_path: str = "/tasks?page=2") -> str:
    """Return the id of the request that the platform sends the browser to the provider with."""
    answer = client.post(
        f"/api/v1/auth/providers/{provider_id}/start", {"next": next_path}, content_type="application/json"
    )
    assert answer.status_code == 200, answer.content
    url = answer.json()["data"]["url"]
    assert url.startswith(f"{SSO_URL}?")
    return read_request(url)["ID"]


def answer_request(idp: SamlProvider, request_id: str, provider_id: str = "company", **options: Any) -> str:
    consumer = get_consumer(provider_id)
    audience = f"{HOST}/auth/saml/{provider_id}/metadata/"
    assertion = idp.make_assertion(consumer, audience, answers=request_id, **options)
    return make_response(assertion, consumer, answers=request_id)


def post(client: Client, response: str, provider_id: str = "company", **fields: str) -> str:
    """Return where the platform sends a browser that brings a response. As from another site, the form brings no cookie
    of the session, and the page that it redirects to gets all cookies."""
    stranger = Client()
    answer = stranger.post(f"/auth/saml/{provider_id}/acs/", {"SAMLResponse": response, **fields})
    assert answer.status_code == 302, answer.content
    if not answer["Location"].endswith("/acs/finish/"):
        return str(answer["Location"])
    client.cookies["saml-acs-session"] = stranger.cookies["saml-acs-session"].value
    finished = client.get(answer["Location"])
    assert finished.status_code == 302, finished.content
    return str(finished["Location"])


def sign_in(client: Client, idp: SamlProvider, provider_id: str = "company", **options: Any) -> str:
    return post(client, answer_request(idp, start(client, provider_id), provider_id, **options), provider_id)


def get_refusal(location: str) -> str:
    parts = urlsplit(location)
    assert parts.path == "/sign-in", location
    return parse_qs(parts.query)["error"][0]


def is_signed_in(client: Client) -> bool:
    return client.get("/api/v1/auth/me").status_code == 200


def make_attribute(name: str, value: str) -> str:
    return f'<saml:Attribute Name="{name}"><saml:AttributeValue>{value}</saml:AttributeValue></saml:Attribute>'


def test_a_new_person_gets_an_account_without_a_role(client: Client, idp: SamlProvider, row: IdentityProvider) -> None:
    attributes = make_attribute("mail", "ada@example.org") + make_attribute("uid", "ada.l")
    assert sign_in(client, idp, person="p-1", attributes=attributes) == "/tasks?page=2"
    me = client.get("/api/v1/auth/me").json()["data"]
    assert (me["username"], me["projects"], me["isAdministrator"]) == ("ada.l", [], False)
    account = SocialAccount.objects.get()
    assert (account.provider, account.uid, account.extra_data["groups"]) == ("company", "p-1", ["ml"])
    assert not account.user.has_usable_password()
    assert not EmailAddress.objects.get().verified


def test_the_same_person_gets_the_same_account(client: Client, idp: SamlProvider, row: IdentityProvider) -> None:
    sign_in(client, idp)
    assert sign_in(Client(), idp, groups=("others",)) == "/tasks?page=2"
    assert User.objects.count() == 1
    assert SocialAccount.objects.get().extra_data["groups"] == ["others"]


def test_groups_give_roles_and_take_them_back(
    client: Client, idp: SamlProvider, row: IdentityProvider, owner: Api
) -> None:
    project = Membership.objects.get(user__username="owner").project
    RoleRule.objects.create(
        provider="company",
        claim="groups",
        pattern="ml",
        project=project,
        role="member",
        created_at=now(),
        updated_at=now(),
    )
    sign_in(client, idp)
    mine = Membership.objects.filter(user__socialaccount__uid="ada")
    assert list(mine.values_list("project", "role")) == [(project.pk, "member")]
    sign_in(Client(), idp, groups=("others",))
    assert not mine.exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memberOf", "cn=ml,ou=groups,dc=example,dc=org"),
        ("http://schemas.microsoft.com/ws/2008/06/identity/claims/groups", "11111111-2222-3333-4444-555555555555"),
        ("http://schemas.xmlsoap.org/claims/Group", "EXAMPLE\\ml"),
    ],
)
def test_groups_are_known_by_the_names_that_providers_use(
    client: Client, idp: SamlProvider, row: IdentityProvider, name: str, value: str
) -> None:
    sign_in(client, idp, groups=(), attributes=make_attribute(name, value))
    assert SocialAccount.objects.get().extra_data["groups"] == [value]


def test_groups_that_entra_id_left_out_are_not_taken_for_none(
    client: Client, idp: SamlProvider, row: IdentityProvider
) -> None:
    link = make_attribute("http://schemas.microsoft.com/claims/groups.link", "https://graph.example.org/groups")
    sign_in(client, idp, groups=(), attributes=link)
    assert SocialAccount.objects.get().extra_data["hasgroups"] == "true"


def test_an_answer_counts_once(client: Client, idp: SamlProvider, row: IdentityProvider) -> None:
    response = answer_request(idp, start(client))
    assert post(client, response) == "/tasks?page=2"
    assert get_refusal(post(client, response)) == "IDENTITY_STATE_UNKNOWN"
    assert get_refusal(post(Client(), response)) == "IDENTITY_STATE_UNKNOWN"


def test_an_answer_counts_in_the_browser_that_began_alone(
    client: Client, idp: SamlProvider, row: IdentityProvider
) -> None:
    response = answer_request(idp, start(client))
    victim = Client()
    assert get_refusal(post(victim, response)) == "IDENTITY_STATE_UNKNOWN"
    assert not is_signed_in(victim)


def test_a_sign_in_that_the_provider_begins_is_refused(
    client: Client, idp: SamlProvider, row: IdentityProvider
) -> None:
    consumer = get_consumer()
    confirmation = f'NotOnOrAfter="2100-01-01T00:00:00Z" Recipient="{consumer}"'
    assertion = idp.make_assertion(consumer, f"{HOST}/auth/saml/company/metadata/", confirmation=confirmation)
    unasked = make_response(assertion, consumer).encode()
    assert get_refusal(post(client, unasked.decode())) == "IDENTITY_STATE_UNKNOWN"
    # An assertion that answers nothing does not answer a request of the thief's either.
    mine = make_response(assertion, consumer, answers=start(client))
    assert get_refusal(post(client, mine)) == "IDENTITY_STATE_UNKNOWN"
    assert not is_signed_in(client)


def test_an_answer_of_one_provider_does_not_count_at_another(
    client: Client, idp: SamlProvider, row: IdentityProvider
) -> None:
    other = SamlProvider()
    make_provider("other", other)
    request_id = start(client)
    assert get_refusal(post(client, answer_request(other, request_id), "company")) == "IDENTITY_SIGNATURE"
    assert get_refusal(post(client, answer_request(idp, request_id), "other")) != ""
    assert get_refusal(post(client, answer_request(other, request_id, "other"), "other")) == "IDENTITY_STATE_UNKNOWN"
    assert not is_signed_in(client)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"signed": False}, "IDENTITY_SAML_UNSIGNED"),
        ({"seconds": -600}, "IDENTITY_TOKEN_EXPIRED"),
        ({"restriction": ""}, "IDENTITY_SAML_AUDIENCE"),
        ({"issuer": "https://other.example.org"}, "IDENTITY_ISSUER_OTHER"),
        ({"algorithm": Constants.RSA_SHA1, "digest": Constants.SHA1}, "IDENTITY_SAML_ALGORITHM"),
        ({"name_format": Constants.NAMEID_TRANSIENT}, "IDENTITY_SAML_TRANSIENT"),
        ({"person": ""}, "IDENTITY_UID_MISSING"),
        ({"person": "x" * 200}, "IDENTITY_UID_MISSING"),
    ],
)
def test_a_refused_answer_says_why_and_stores_nothing(
    client: Client, idp: SamlProvider, row: IdentityProvider, options: dict[str, Any], code: str
) -> None:
    request_id = start(client)
    before = Session.objects.count()
    assert get_refusal(post(client, answer_request(idp, request_id, **options))) == code
    assert Session.objects.count() == before
    assert not User.objects.exists()
    text = client.get("/api/v1/auth/providers", {"error": code}).json()["data"]["refusal"]
    assert text["message"]


@pytest.mark.parametrize("response", ["", "%%%", "PGEvPg==", "x" * 600_000])
def test_nonsense_is_refused(client: Client, row: IdentityProvider, response: str) -> None:
    assert get_refusal(post(client, response)) == "IDENTITY_ANSWER"
    assert get_refusal(post(client, response, "no-such")) == "IDENTITY_PROVIDER_UNKNOWN"
    assert not Session.objects.exists()


@pytest.mark.parametrize("path", ["https://evil.example.org/", "//evil.example.org", "/\\evil.example.org"])
def test_nobody_is_sent_to_another_site_afterwards(
    client: Client, idp: SamlProvider, row: IdentityProvider, path: str
) -> None:
    response = answer_request(idp, start(client, next_path=path))
    assert post(client, response, RelayState=path) == "/"
    response = answer_request(idp, start(client))
    assert post(client, response, RelayState=path) == "/tasks?page=2"


def test_finishing_without_an_answer_is_refused(client: Client, row: IdentityProvider) -> None:
    client.cookies["saml-acs-session"] = "x" * 32
    answer = client.get("/auth/saml/company/acs/finish/")
    assert get_refusal(answer["Location"]) == "IDENTITY_STATE_UNKNOWN"
    assert client.get("/auth/saml/company/acs/").status_code == 405
    assert client.post("/auth/saml/company/acs/finish/").status_code == 405


def test_an_attribute_that_people_are_known_by_is_never_replaced_by_the_name(client: Client, idp: SamlProvider) -> None:
    make_provider("company", idp, attributes={"uid": ["employeeNumber"]})
    assert get_refusal(sign_in(client, idp)) == "IDENTITY_UID_MISSING"
    assert sign_in(client, idp, attributes=make_attribute("employeeNumber", "42")) == "/tasks?page=2"
    assert SocialAccount.objects.get().uid == "42"


def test_an_address_alone_opens_no_account(client: Client, idp: SamlProvider) -> None:
    make_provider("company", idp, vouches_for_emails=True)
    User.objects.create_user("grace", email="grace@example.org")
    mail = make_attribute("mail", "grace@example.org")
    assert get_refusal(sign_in(client, idp, attributes=mail)) == "IDENTITY_EMAIL_TAKEN"


def test_a_provider_that_vouches_for_addresses_opens_the_account_that_has_one(
    client: Client, idp: SamlProvider
) -> None:
    make_provider("company", idp, vouches_for_emails=True, link_by_verified_email=True)
    make_provider("other", idp, link_by_verified_email=True)
    user = User.objects.create_user("grace", email="grace@example.org")
    mail = make_attribute("mail", "grace@example.org")
    assert get_refusal(sign_in(client, idp, "other", attributes=mail)) == "IDENTITY_EMAIL_TAKEN"
    assert sign_in(client, idp, attributes=mail) == "/tasks?page=2"
    assert SocialAccount.objects.get().user == user


def test_a_disabled_provider_neither_begins_nor_ends_a_sign_in(
    client: Client, idp: SamlProvider, row: IdentityProvider
) -> None:
    response = answer_request(idp, start(client))
    IdentityProvider.objects.update(enabled=False)
    assert get_refusal(post(client, response)) == "IDENTITY_PROVIDER_UNKNOWN"
    assert client.post("/api/v1/auth/providers/company/start", {}, content_type="application/json").status_code == 404


def test_a_trial_shows_the_attributes_and_changes_nothing(
    client: Client, idp: SamlProvider, row: IdentityProvider
) -> None:
    client.force_login(User.objects.create_superuser("root"))
    IdentityProvider.objects.update(enabled=False)
    url = client.post("/api/v1/identity-providers/company/trial", {}, content_type="application/json")
    response = answer_request(idp, read_request(url.json()["data"]["url"])["ID"])
    stranger = Client()
    answer = stranger.post("/auth/saml/company/acs/", {"SAMLResponse": response})
    client.cookies["saml-acs-session"] = stranger.cookies["saml-acs-session"].value
    page = client.get(answer["Location"])
    assert page.status_code == 200
    assert "&quot;groups&quot;" in page.content.decode()
    assert not SocialAccount.objects.exists()


def test_a_provider_reads_where_to_send_answers(client: Client, row: IdentityProvider) -> None:
    page = client.get("/auth/saml/company/metadata/")
    assert page.status_code == 200
    assert f'Location="{get_consumer()}"' in page.content.decode()
    assert client.get("/auth/saml/no-such/metadata/").status_code == 404


# Settings -------------------------------------------------------------------------------------------------------------
def make_body(**settings: Any) -> dict[str, Any]:
    return {"id": "company", "kind": "saml", "name": "Company", "settings": settings}


def test_an_administrator_sets_a_provider_up_by_its_metadata(admin: Api, idp: SamlProvider) -> None:
    made = admin.post("/identity-providers", make_body(metadata=idp.metadata.decode()))
    assert made.status == 201, made.body
    assert made.data["callbackUrl"] == get_consumer()
    assert made.data["metadataUrl"] == f"{HOST}/auth/saml/company/metadata/"
    assert (made.data["settings"]["entity_id"], made.data["settings"]["sso_url"]) == (ENTITY_ID, SSO_URL)
    assert "metadata" not in made.data["settings"]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, "settings.entity_id"),
        ({"metadata": "<a/>"}, "settings.metadata"),
        ({"metadata": "x" * 400_000}, "settings.metadata"),
        ({"metadata": ["x"]}, "settings.metadata"),
        ({"metadata_url": "http://10.0.0.1/metadata"}, "settings.metadata_url"),
        ({"metadata_url": "https://169.254.169.254/metadata"}, "settings.metadata_url"),
        ({"metadata_url": "http://127.0.0.1:9/metadata"}, "settings.metadata_url"),
        ({"metadata_url": "http://127.0.0.1:9/metadata", "metadata": "<a/>"}, "settings.metadata"),
        ({"server_url": "https://sso.example.org"}, "settings.server_url"),
    ],
)
def test_wrong_settings_are_named(admin: Api, settings: dict[str, Any], field: str) -> None:
    answer = admin.post("/identity-providers", make_body(**settings))
    assert answer.status == 400, answer.body
    assert field in answer.problems
    assert not IdentityProvider.objects.exists()


@contextmanager
def serve_metadata(pages: dict[str, bytes]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages.get(self.path)
            self.send_response(404 if body is None else 200)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def test_new_certificates_are_read_at_the_metadatas_address(admin: Api, client: Client, idp: SamlProvider) -> None:
    pages = {"/metadata": idp.metadata}
    with serve_metadata(pages) as host:
        made = admin.post("/identity-providers", make_body(metadata_url=f"{host}/metadata"))
        assert made.status == 201, made.body
        assert metadata.refresh_metadata() == 0
        new = SamlProvider()
        pages["/metadata"] = new.metadata
        assert get_refusal(sign_in(client, new)) == "IDENTITY_SIGNATURE"
        assert metadata.refresh_metadata() == 1
        assert sign_in(client, new) == "/tasks?page=2"
        assert AuditEvent.objects.filter(action="identity-provider.change", actor=None).count() == 1


@pytest.mark.parametrize("page", [None, b"nonsense", b"other"])
def test_metadata_that_cannot_be_read_again_leaves_what_was_read(
    admin: Api, idp: SamlProvider, page: bytes | None
) -> None:
    pages = {"/metadata": idp.metadata}
    with serve_metadata(pages) as host:
        admin.post("/identity-providers", make_body(metadata_url=f"{host}/metadata"))
        before = IdentityProvider.objects.get().settings
        if page is None:
            del pages["/metadata"]
        else:
            pages["/metadata"] = SamlProvider().metadata.replace(b"idp.", b"evil.") if page == b"other" else page
        assert metadata.refresh_metadata() == 0
        assert IdentityProvider.objects.get().settings == before
    saved = admin.patch("/identity-providers/company", {"settings": {**before, "create_users": False}})
    assert (saved.status, saved.data["settings"]["create_users"]) == (200, False)


def test_linked_accounts_are_not_opened_to_the_people_of_another_provider(admin: Api, idp: SamlProvider) -> None:
    admin.post("/identity-providers", make_body(metadata=idp.metadata.decode()))
    SocialAccount.objects.create(user=User.objects.create_user("ada"), provider="company", uid="ada")
    other = metadata.read_metadata(SamlProvider().metadata.replace(b"idp.", b"other."))
    assert admin.patch("/identity-providers/company", {"settings": other}).error == "IDENTITY_LINKED"
    same = metadata.read_metadata(idp.metadata)
    known = {**same, "attributes": {"uid": ["employeeNumber"]}}
    assert admin.patch("/identity-providers/company", {"settings": known}).error == "IDENTITY_LINKED"
    assert admin.patch("/identity-providers/company", {"settings": same, "name": "Firm"}).status == 200


def test_the_environment_names_a_provider_by_a_file(
    client: Client, db: None, idp: SamlProvider, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    file = tmp_path / "metadata.xml"
    file.write_bytes(idp.metadata)
    providers = tmp_path / "providers.toml"
    providers.write_text(
        f'[[providers]]\nid = "company"\nkind = "saml"\nname = "Company"\nsettings = {{ metadata_file = "{file}" }}\n'
        '[[providers]]\nid = "other"\nkind = "saml"\nsettings = { metadata_url = "https://sso.example.org/x" }\n'
    )
    monkeypatch.setenv("FERMI_IDENTITY_PROVIDERS", str(providers))
    assert sign_in(client, idp) == "/tasks?page=2"
    assert ["metadata_url" in one for one in environment.read_environment().errors] == [True]
