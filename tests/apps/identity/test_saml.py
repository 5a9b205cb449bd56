"""Which SAML responses are accepted with the settings that allauth is given."""

from collections.abc import Iterator
from typing import Any

import pytest
from allauth.socialaccount.providers.saml.utils import build_saml_config
from django.test import RequestFactory, override_settings
from onelogin.saml2.auth import OneLogin_Saml2_Auth
from onelogin.saml2.constants import OneLogin_Saml2_Constants as Constants

from apps.identity import saml
from tests.fakes.saml import ENTITY_ID, SSO_URL, SamlProvider, make_response

CONSUMER = "https://fermi.example.org/saml/company/acs/"
AUDIENCE = "https://fermi.example.org/saml/company/metadata/"


@pytest.fixture(scope="module")
def provider() -> SamlProvider:
    return SamlProvider()


@pytest.fixture(autouse=True)
def addresses() -> Iterator[None]:
    with override_settings(
        ROOT_URLCONF="allauth.socialaccount.providers.saml.urls", ALLOWED_HOSTS=["fermi.example.org"]
    ):
        yield


def process(provider: SamlProvider, response: str) -> OneLogin_Saml2_Auth:
    """Return what the library makes of a response, with our settings as allauth passes them on."""
    request = RequestFactory().get("/saml/company/acs/", secure=True, headers={"host": "fermi.example.org"})
    settings = saml.make_allauth_settings(saml.read_metadata(provider.metadata))
    data: dict[str, Any] = {
        "https": "on",
        "http_host": "fermi.example.org",
        "script_name": "",
        "path_info": "/saml/company/acs/",
        "get_data": {},
        "post_data": {"SAMLResponse": response},
    }
    auth = OneLogin_Saml2_Auth(data, build_saml_config(request, settings, "company"))
    auth.process_response()
    return auth


def get_refusal(provider: SamlProvider, response: str) -> str:
    auth = process(provider, response)
    assert not auth.is_authenticated()
    assert auth.get_errors()
    return str(auth.get_last_error_reason())


def test_a_signed_assertion_names_the_person_and_their_groups(provider: SamlProvider) -> None:
    auth = process(provider, make_response(provider.make_assertion(CONSUMER, AUDIENCE), CONSUMER))
    assert not auth.get_errors(), auth.get_last_error_reason()
    assert (auth.get_nameid(), auth.get_attributes()) == ("ada", {"groups": ["ml"]})
    assert auth.get_last_response_in_response_to() == "request-1"


def test_an_unsigned_assertion_is_refused(provider: SamlProvider) -> None:
    assertion = provider.make_assertion(CONSUMER, AUDIENCE, signed=False)
    assert "not signed" in get_refusal(provider, make_response(assertion, CONSUMER))


def test_an_assertion_signed_by_another_key_is_refused(provider: SamlProvider) -> None:
    assertion = SamlProvider().make_assertion(CONSUMER, AUDIENCE)
    assert "Signature validation failed" in get_refusal(provider, make_response(assertion, CONSUMER))


def test_an_assertion_that_was_changed_is_refused(provider: SamlProvider) -> None:
    assertion = provider.make_assertion(CONSUMER, AUDIENCE).replace(">ml<", ">admins<")
    assert "Signature validation failed" in get_refusal(provider, make_response(assertion, CONSUMER))


def test_a_forged_assertion_before_a_signed_one_is_refused(provider: SamlProvider) -> None:
    signed = provider.make_assertion(CONSUMER, AUDIENCE)
    forged = provider.make_assertion(CONSUMER, AUDIENCE, person="root", signed=False)
    get_refusal(provider, make_response(signed, CONSUMER, before=forged))


def test_a_signed_assertion_wrapped_into_a_forged_one_is_refused(provider: SamlProvider) -> None:
    signed = provider.make_assertion(CONSUMER, AUDIENCE)
    forged = provider.make_assertion(CONSUMER, AUDIENCE, person="root", signed=False)
    wrapped = forged.replace("</saml:Subject>", f"</saml:Subject><saml:Advice>{signed}</saml:Advice>")
    get_refusal(provider, make_response(wrapped, CONSUMER))


def test_an_assertion_for_another_platform_is_refused(provider: SamlProvider) -> None:
    assertion = provider.make_assertion(CONSUMER, "https://other.example.org")
    assert "not a valid audience" in get_refusal(provider, make_response(assertion, CONSUMER))


def test_an_assertion_for_another_address_is_refused(provider: SamlProvider) -> None:
    elsewhere = "https://other.example.org/acs/"
    assert get_refusal(provider, make_response(provider.make_assertion(elsewhere, AUDIENCE), CONSUMER))
    assert get_refusal(provider, make_response(provider.make_assertion(CONSUMER, AUDIENCE), elsewhere))


def test_an_expired_assertion_is_refused(provider: SamlProvider) -> None:
    assertion = provider.make_assertion(CONSUMER, AUDIENCE, seconds=-3600)
    assert "expired" in get_refusal(provider, make_response(assertion, CONSUMER))


def test_a_signature_with_sha1_is_refused(provider: SamlProvider) -> None:
    assertion = provider.make_assertion(CONSUMER, AUDIENCE, algorithm=Constants.RSA_SHA1, digest=Constants.SHA1)
    assert "Deprecated" in get_refusal(provider, make_response(assertion, CONSUMER))


def test_sign_ins_that_the_provider_begins_are_refused() -> None:
    given = saml.make_allauth_settings({"entity_id": "a", "sso_url": "b", "x509": "c"})
    assert given["advanced"]["reject_idp_initiated_sso"] is True


def test_metadata_gives_the_settings(provider: SamlProvider) -> None:
    found = saml.read_metadata(provider.metadata)
    assert (found["entity_id"], found["sso_url"]) == (ENTITY_ID, SSO_URL)
    assert saml.list_problems(found) == []


@pytest.mark.parametrize(
    "xml",
    [
        b"", b"nonsense", b"<a/>", b"<a>" + b" " * saml.MAX_METADATA_BYTES,
        b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
    ],
    ids=["empty", "no XML", "no provider", "large", "an entity"],
)  # fmt: skip
def test_metadata_that_is_none_is_refused(xml: bytes) -> None:
    with pytest.raises(ValueError, match="metadata"):
        saml.read_metadata(xml)


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"sso_url": "http://idp.example.org/sso"}, "sso_url", "IDENTITY_SETTING_NO_ADDRESS"),
        ({"sso_url": 5}, "sso_url", "IDENTITY_SETTING_NO_ADDRESS"),
        ({"x509": "short"}, "x509", "IDENTITY_SETTING_NO_CERTIFICATE"),
        ({"x509": ""}, "x509", "IDENTITY_SETTING_MISSING"),
        ({"entity_id": ["a"]}, "entity_id", "IDENTITY_SETTING_NO_TEXT"),
        ({"want_assertion_signed": False}, "want_assertion_signed", "IDENTITY_SETTING_UNKNOWN"),
        ({"attributes": {"email": "mail"}}, "attributes", "IDENTITY_SETTING_NO_TEXTS"),
        ({"attributes": {"is_superuser": ["x"]}}, "attributes", "IDENTITY_SETTING_NO_TEXTS"),
    ],
)
def test_wrong_settings_are_named(provider: SamlProvider, change: dict[str, Any], field: str, code: str) -> None:
    settings = {**saml.read_metadata(provider.metadata), **change}
    assert saml.list_problems(settings) == [(f"settings.{field}", code)]
