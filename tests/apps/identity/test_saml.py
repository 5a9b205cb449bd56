"""Which SAML responses count, and which settings."""

from typing import Any

import pytest
from onelogin.saml2.constants import OneLogin_Saml2_Constants as Constants

from apps.identity import saml_metadata as metadata
from apps.identity.errors import SignInError
from apps.identity.saml import messages
from apps.identity.saml.answers import SamlAnswer
from apps.identity.saml_settings import MAX_CERTIFICATES, list_certificates, list_problems
from tests.fakes.saml import ENTITY_ID, SSO_URL, SamlProvider, make_response, read_request

ADDRESSES = messages.PlatformAddresses(
    consumer="https://fermi.example.org/auth/saml/company/acs/",
    metadata="https://fermi.example.org/auth/saml/company/metadata/",
)
CONSUMER, AUDIENCE = ADDRESSES.consumer, ADDRESSES.metadata


@pytest.fixture(scope="module")
def provider() -> SamlProvider:
    return SamlProvider()


def read(provider: SamlProvider, response: str, **settings: Any) -> SamlAnswer:
    return messages.read_response({**metadata.read_metadata(provider.metadata), **settings}, ADDRESSES, response)


def get_refusal(provider: SamlProvider, response: str, **settings: Any) -> str:
    with pytest.raises(SignInError) as caught:
        read(provider, response, **settings)
    return caught.value.code


def test_a_signed_assertion_names_the_person_and_their_groups(provider: SamlProvider) -> None:
    answer = read(provider, make_response(provider.make_assertion(CONSUMER, AUDIENCE), CONSUMER))
    assert (answer.name_id, answer.attributes, answer.request_id) == ("ada", {"groups": ["ml"]}, "request-1")


def test_an_unsigned_assertion_is_refused(provider: SamlProvider) -> None:
    assertion = provider.make_assertion(CONSUMER, AUDIENCE, signed=False)
    assert get_refusal(provider, make_response(assertion, CONSUMER)) == "IDENTITY_SAML_UNSIGNED"


def test_an_assertion_signed_by_another_key_is_refused(provider: SamlProvider) -> None:
    assertion = SamlProvider().make_assertion(CONSUMER, AUDIENCE)
    assert get_refusal(provider, make_response(assertion, CONSUMER)) == "IDENTITY_SIGNATURE"


@pytest.mark.parametrize("change", [(">ml<", ">admins<"), (">ada<", ">root<"), ('"request-1"', '"request-2"')])
def test_an_assertion_that_was_changed_is_refused(provider: SamlProvider, change: tuple[str, str]) -> None:
    assertion = provider.make_assertion(CONSUMER, AUDIENCE).replace(*change)
    answers = "request-2" if "request-2" in change[1] else "request-1"
    assert get_refusal(provider, make_response(assertion, CONSUMER, answers=answers)) == "IDENTITY_SIGNATURE"


def test_a_forged_assertion_before_a_signed_one_is_refused(provider: SamlProvider) -> None:
    signed = provider.make_assertion(CONSUMER, AUDIENCE)
    forged = provider.make_assertion(CONSUMER, AUDIENCE, person="root", signed=False)
    assert get_refusal(provider, make_response(signed, CONSUMER, before=forged)) == "IDENTITY_ANSWER"


def test_a_signed_assertion_wrapped_into_a_forged_one_is_refused(provider: SamlProvider) -> None:
    signed = provider.make_assertion(CONSUMER, AUDIENCE)
    forged = provider.make_assertion(CONSUMER, AUDIENCE, person="root", signed=False)
    wrapped = forged.replace("</saml:Subject>", f"</saml:Subject><saml:Advice>{signed}</saml:Advice>")
    get_refusal(provider, make_response(wrapped, CONSUMER))


@pytest.mark.parametrize("place", ["Extensions", "Issuer"])
def test_a_signed_assertion_elsewhere_in_the_response_signs_no_forged_one(provider: SamlProvider, place: str) -> None:
    signed = provider.make_assertion(CONSUMER, AUDIENCE)
    forged = provider.make_assertion(CONSUMER, AUDIENCE, person="root", signed=False)
    namespace = "samlp" if place == "Extensions" else "saml"
    around = f"<{namespace}:{place}>{signed}</{namespace}:{place}>"
    get_refusal(provider, make_response(forged, CONSUMER, before=around))


def test_a_comment_within_the_name_does_not_cut_it_short(provider: SamlProvider) -> None:
    """The flaw of 2018 in several libraries: canonical XML has no comments, so adding one keeps the signature, and a
    reader that stops there reads another person's name."""
    assertion = provider.make_assertion(CONSUMER, AUDIENCE, person="root.evil.example.org")
    changed = assertion.replace(">root.evil.example.org<", ">root<!-- -->.evil.example.org<")
    assert changed != assertion
    assert read(provider, make_response(changed, CONSUMER)).name_id == "root.evil.example.org"
    value = provider.make_assertion(CONSUMER, AUDIENCE, groups=("ml.evil",)).replace(">ml.evil<", ">ml<!-- -->.evil<")
    assert read(provider, make_response(value, CONSUMER)).attributes["groups"] == ["ml.evil"]


def test_an_assertion_for_another_platform_is_refused(provider: SamlProvider) -> None:
    for changed in (
        {"audience": "https://other.example.org"},
        {"restriction": ""},
    ):
        assertion = provider.make_assertion(CONSUMER, **{"audience": AUDIENCE, **changed})  # type: ignore[arg-type]
        assert get_refusal(provider, make_response(assertion, CONSUMER)) == "IDENTITY_SAML_AUDIENCE"


def test_an_assertion_for_another_address_is_refused(provider: SamlProvider) -> None:
    for elsewhere in ("https://other.example.org/acs/", CONSUMER + "more", CONSUMER + "?x=1"):
        assertion = provider.make_assertion(elsewhere, AUDIENCE)
        assert get_refusal(provider, make_response(assertion, CONSUMER)) == "IDENTITY_SAML_ADDRESS"
    elsewhere = "https://other.example.org/acs/"
    ours = provider.make_assertion(CONSUMER, AUDIENCE)
    assert get_refusal(provider, make_response(ours, elsewhere)) == "IDENTITY_SAML_ADDRESS"


@pytest.mark.parametrize(
    ("confirmation", "code"),
    [
        ('NotOnOrAfter="2100-01-01T00:00:00Z" InResponseTo="request-1"', "IDENTITY_SAML_ADDRESS"),
        (f'Recipient="{CONSUMER}" InResponseTo="request-1"', "IDENTITY_SAML_ADDRESS"),
        (f'NotOnOrAfter="2100-01-01T00:00:00Z" Recipient="{CONSUMER}"', "IDENTITY_STATE_UNKNOWN"),
    ],
    ids=["no recipient", "no end", "answers nothing"],
)
def test_a_signed_assertion_says_where_until_when_and_in_answer_to_what_it_counts(
    provider: SamlProvider, confirmation: str, code: str
) -> None:
    assertion = provider.make_assertion(CONSUMER, AUDIENCE, confirmation=confirmation)
    assert get_refusal(provider, make_response(assertion, CONSUMER)) == code


def test_an_expired_assertion_is_refused(provider: SamlProvider) -> None:
    assertion = provider.make_assertion(CONSUMER, AUDIENCE, seconds=-3600)
    assert get_refusal(provider, make_response(assertion, CONSUMER)) == "IDENTITY_TOKEN_EXPIRED"


def test_an_assertion_of_another_issuer_is_refused(provider: SamlProvider) -> None:
    assertion = provider.make_assertion(CONSUMER, AUDIENCE, issuer="https://other.example.org")
    assert get_refusal(provider, make_response(assertion, CONSUMER)) == "IDENTITY_ISSUER_OTHER"


def test_a_signature_with_sha1_is_refused(provider: SamlProvider) -> None:
    assertion = provider.make_assertion(CONSUMER, AUDIENCE, algorithm=Constants.RSA_SHA1, digest=Constants.SHA1)
    assert get_refusal(provider, make_response(assertion, CONSUMER)) == "IDENTITY_SAML_ALGORITHM"


def test_what_the_provider_refuses_is_said(provider: SamlProvider) -> None:
    response = make_response("", CONSUMER, status=Constants.STATUS_RESPONDER)
    assert get_refusal(provider, response) == "IDENTITY_SAML_STATUS"


@pytest.mark.parametrize(
    "doctype",
    ['<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]>', '<!DOCTYPE a [<!ENTITY b "ml">]>', "<!DOCTYPE a>"],
)
def test_a_response_with_entities_is_refused(provider: SamlProvider, doctype: str) -> None:
    assertion = provider.make_assertion(CONSUMER, AUDIENCE)
    assert get_refusal(provider, make_response(assertion, CONSUMER, doctype=doctype)) == "IDENTITY_ANSWER"


@pytest.mark.parametrize(
    "response",
    ["", "%%%", "bm9uc2Vuc2U=", "PGEvPg==", "A" * 600_000, "é"],
    ids=["empty", "no base64", "no XML", "another XML", "large", "no ASCII"],
)
def test_what_is_no_response_is_refused(provider: SamlProvider, response: str) -> None:
    assert get_refusal(provider, response) == "IDENTITY_ANSWER"


def test_each_certificate_of_the_metadata_counts(provider: SamlProvider) -> None:
    """Providers publish the next certificate before they sign with it."""
    both = "\n".join((SamlProvider().certificate, provider.certificate))
    response = make_response(provider.make_assertion(CONSUMER, AUDIENCE), CONSUMER)
    assert read(provider, response, x509=both).name_id == "ada"
    assert len(list_certificates(both)) == 2


def test_a_request_says_where_the_answer_goes_and_nothing_about_the_person(provider: SamlProvider) -> None:
    url, request_id = messages.make_request(metadata.read_metadata(provider.metadata), ADDRESSES)
    request = read_request(url)
    assert url.startswith(f"{SSO_URL}?")
    assert (request["ID"], request["AssertionConsumerServiceURL"]) == (request_id, CONSUMER)
    assert request["Issuer"] == AUDIENCE


def test_the_platforms_metadata_asks_for_signed_assertions_and_does_not_expire(provider: SamlProvider) -> None:
    found = messages.render_metadata(metadata.read_metadata(provider.metadata), ADDRESSES).decode()
    assert CONSUMER in found
    assert f'entityID="{AUDIENCE}"' in found
    assert 'WantAssertionsSigned="true"' in found
    assert "validUntil" not in found


def test_metadata_gives_the_settings(provider: SamlProvider) -> None:
    found = metadata.read_metadata(provider.metadata)
    assert (found["entity_id"], found["sso_url"]) == (ENTITY_ID, SSO_URL)
    assert list_problems(found) == []


@pytest.mark.parametrize(
    "xml",
    [
        b"", b"nonsense", b"<a/>", b"<a>" + b" " * metadata.MAX_METADATA_BYTES,
        b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
    ],
    ids=["empty", "no XML", "no provider", "large", "an entity"],
)  # fmt: skip
def test_metadata_that_is_none_is_refused(xml: bytes) -> None:
    with pytest.raises(ValueError, match="metadata"):
        metadata.read_metadata(xml)


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"sso_url": "http://idp.example.org/sso"}, "sso_url", "IDENTITY_SETTING_NO_ADDRESS"),
        ({"sso_url": 5}, "sso_url", "IDENTITY_SETTING_NO_ADDRESS"),
        ({"sso_url": "javascript:alert(1)"}, "sso_url", "IDENTITY_SETTING_NO_ADDRESS"),
        ({"metadata_url": "http://10.0.0.1/x"}, "metadata_url", "IDENTITY_SETTING_NO_ADDRESS"),
        ({"x509": "short"}, "x509", "IDENTITY_SETTING_NO_CERTIFICATE"),
        ({"x509": "A" * 400}, "x509", "IDENTITY_SETTING_NO_CERTIFICATE"),
        ({"x509": ""}, "x509", "IDENTITY_SETTING_MISSING"),
        ({"entity_id": ["a"]}, "entity_id", "IDENTITY_SETTING_NO_TEXT"),
        ({"entity_id": "a']"}, "entity_id", "IDENTITY_SETTING_NO_TEXT"),
        ({"want_assertion_signed": False}, "want_assertion_signed", "IDENTITY_SETTING_UNKNOWN"),
        ({"attributes": {"email": "mail"}}, "attributes", "IDENTITY_SETTING_NO_ATTRIBUTES"),
        ({"attributes": {"is_superuser": ["x"]}}, "attributes", "IDENTITY_SETTING_NO_ATTRIBUTES"),
        ({"attributes": []}, "attributes", "IDENTITY_SETTING_NO_ATTRIBUTES"),
        ({"vouches_for_emails": "yes"}, "vouches_for_emails", "IDENTITY_SETTING_NO_FLAG"),
    ],
)
def test_wrong_settings_are_named(provider: SamlProvider, change: dict[str, Any], field: str, code: str) -> None:
    settings = {**metadata.read_metadata(provider.metadata), **change}
    assert list_problems(settings) == [(f"settings.{field}", code)]


def test_more_certificates_than_any_provider_has_are_refused(provider: SamlProvider) -> None:
    with pytest.raises(ValueError, match="certificates"):
        list_certificates("\n".join([provider.certificate] * (MAX_CERTIFICATES + 1)))
