"""The messages of SAML 2.0: our requests, our metadata, and which responses of a provider count.

An assertion must be signed with a certificate of the provider, by SHA-256 or better, be meant for this platform and
this address, be in its time, and answer a request of ours. python3-saml accepts an assertion that leaves out its
audience, its recipient, its end or what it answers; here each of them has to be there, as section 4.1.4.2 of the
profiles says.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from lxml.etree import LxmlError
from onelogin.saml2.auth import OneLogin_Saml2_Auth
from onelogin.saml2.constants import OneLogin_Saml2_Constants as Constants
from onelogin.saml2.errors import OneLogin_Saml2_Error, OneLogin_Saml2_ValidationError
from onelogin.saml2.response import OneLogin_Saml2_Response
from onelogin.saml2.settings import OneLogin_Saml2_Settings

from apps.identity.errors import SignInError
from apps.identity.saml.answers import SamlAnswer
from apps.identity.saml_settings import list_certificates

MAX_RESPONSE_TEXT = 500_000
MAX_ATTRIBUTES = 200
MAX_VALUES = 2_000
MAX_VALUE_LENGTH = 2_000
_Invalid = OneLogin_Saml2_ValidationError
CODES: Mapping[int, str] = {
    _Invalid.STATUS_CODE_IS_NOT_SUCCESS: "IDENTITY_SAML_STATUS",
    _Invalid.ASSERTION_TOO_EARLY: "IDENTITY_TOKEN_EARLY",
    _Invalid.ASSERTION_EXPIRED: "IDENTITY_TOKEN_EXPIRED",
    _Invalid.SESSION_EXPIRED: "IDENTITY_TOKEN_EXPIRED",
    _Invalid.WRONG_DESTINATION: "IDENTITY_SAML_ADDRESS",
    _Invalid.EMPTY_DESTINATION: "IDENTITY_SAML_ADDRESS",
    _Invalid.WRONG_SUBJECTCONFIRMATION: "IDENTITY_SAML_ADDRESS",
    _Invalid.WRONG_AUDIENCE: "IDENTITY_SAML_AUDIENCE",
    _Invalid.WRONG_ISSUER: "IDENTITY_ISSUER_OTHER",
    _Invalid.ISSUER_MULTIPLE_IN_RESPONSE: "IDENTITY_ISSUER_OTHER",
    _Invalid.ISSUER_NOT_FOUND_IN_ASSERTION: "IDENTITY_ISSUER_OTHER",
    _Invalid.NO_SIGNED_ASSERTION: "IDENTITY_SAML_UNSIGNED",
    _Invalid.NO_SIGNATURE_FOUND: "IDENTITY_SAML_UNSIGNED",
    _Invalid.DEPRECATED_SIGNATURE_METHOD: "IDENTITY_SAML_ALGORITHM",
    _Invalid.DEPRECATED_DIGEST_METHOD: "IDENTITY_SAML_ALGORITHM",
    _Invalid.INVALID_SIGNATURE: "IDENTITY_SIGNATURE",
    _Invalid.NO_NAMEID: "IDENTITY_UID_MISSING",
    _Invalid.EMPTY_NAMEID: "IDENTITY_UID_MISSING",
}
"""What the sign-in page shows. Whatever is not in the table cannot be read: IDENTITY_ANSWER."""


@dataclass(frozen=True, slots=True)
class PlatformAddresses:
    """Where a provider finds this platform. `consumer`: where it sends its answers; `metadata`: our description, which
    is also our entity id unless the settings have another."""

    consumer: str
    metadata: str


class _Response(OneLogin_Saml2_Response):
    """A response; `check_bearer` does what the library leaves open."""

    def check_bearer(self, consumer: str) -> None:
        """Raise SignInError unless the assertion, which is signed, says for whom, where, until when and in answer to
        what it counts. What the response around it says is not signed."""
        if not self.get_audiences():
            raise SignInError("IDENTITY_SAML_AUDIENCE", "the assertion names no audience")
        answers = self.get_in_response_to()
        found = [
            data
            for one in self._query_assertion("/saml:Subject/saml:SubjectConfirmation")
            if one.get("Method") == Constants.CM_BEARER
            for data in one.findall("saml:SubjectConfirmationData", namespaces=Constants.NSMAP)
        ]
        if not answers or not any(one.get("InResponseTo") == answers for one in found):
            raise SignInError("IDENTITY_STATE_UNKNOWN", "the assertion answers no request")
        if not any(
            (one.get("InResponseTo"), one.get("Recipient")) == (answers, consumer) and one.get("NotOnOrAfter")
            for one in found
        ):
            raise SignInError("IDENTITY_SAML_ADDRESS", "the assertion names no recipient, another one, or no end")


def make_request(settings: Mapping[str, Any], addresses: PlatformAddresses) -> tuple[str, str]:
    """Return the provider's address with a request to sign somebody in, and the request's id."""
    auth = OneLogin_Saml2_Auth(_describe_request(addresses.consumer), _make_config(settings, addresses))
    url = auth.login(return_to="")
    return str(url), str(auth.get_last_request_id())


def render_metadata(settings: Mapping[str, Any], addresses: PlatformAddresses) -> bytes:
    """Return what a provider reads about this platform. It does not expire: providers read it once."""
    config = OneLogin_Saml2_Settings(_make_config(settings, addresses), sp_validation_only=True)
    metadata = config.get_sp_metadata()
    return metadata.encode() if isinstance(metadata, str) else bytes(metadata)


def read_response(settings: Mapping[str, Any], addresses: PlatformAddresses, text: str) -> SamlAnswer:
    """Return what a provider says in the form field SAMLResponse. Whether this browser began the sign-in is for the
    caller to check, by `request_id`. Raises SignInError."""
    if not text or len(text) > MAX_RESPONSE_TEXT:
        raise SignInError("IDENTITY_ANSWER", f"{len(text)} characters")
    try:
        response = _Response(OneLogin_Saml2_Settings(_make_config(settings, addresses)), text)
        response.is_valid(_describe_request(addresses.consumer), raise_exceptions=True)
        response.check_bearer(addresses.consumer)
        return SamlAnswer(
            request_id=response.get_in_response_to(),
            name_id=response.get_nameid() or "",
            name_id_format=response.get_nameid_format() or "",
            attributes=_bound_attributes(response.get_attributes()),
        )
    except OneLogin_Saml2_ValidationError as error:
        raise SignInError(CODES.get(error.code, "IDENTITY_ANSWER"), str(error)[:300]) from error
    except (OneLogin_Saml2_Error, LxmlError, ValueError, SyntaxError, TypeError, KeyError) as error:
        raise SignInError("IDENTITY_ANSWER", f"{type(error).__name__}: {str(error)[:300]}") from error


def _bound_attributes(found: Mapping[str, list[Any]]) -> dict[str, list[str]]:
    """Return the texts among the values. What is too long counts for nothing."""
    return {
        name: [one for one in values[:MAX_VALUES] if isinstance(one, str) and len(one) <= MAX_VALUE_LENGTH]
        for name, values in list(found.items())[:MAX_ATTRIBUTES]
        if len(name) <= MAX_VALUE_LENGTH
    }


def _make_config(settings: Mapping[str, Any], addresses: PlatformAddresses) -> dict[str, Any]:
    """Return the settings as python3-saml reads them."""
    certificates = list_certificates(settings["x509"])
    return {
        "strict": True,
        "idp": {
            "entityId": settings["entity_id"],
            "singleSignOnService": {"url": settings["sso_url"], "binding": Constants.BINDING_HTTP_REDIRECT},
            "x509cert": certificates[0],
            "x509certMulti": {"signing": certificates},
        },
        "sp": {
            "entityId": settings.get("sp_entity_id") or addresses.metadata,
            "assertionConsumerService": {"url": addresses.consumer, "binding": Constants.BINDING_HTTP_POST},
            "NameIDFormat": Constants.NAMEID_UNSPECIFIED,
        },
        "security": {
            "wantAssertionsSigned": True,
            "wantNameId": True,
            "wantAttributeStatement": False,
            "rejectDeprecatedAlgorithm": True,
            "allowRepeatAttributeName": True,
            "allowSingleLabelDomains": True,
            "requestedAuthnContext": False,
            "metadataValidUntil": "",
            "metadataCacheDuration": "",
        },
    }


def _describe_request(url: str) -> dict[str, Any]:
    """Return the request to `url` as python3-saml reads it: by our own address, not by the headers of a proxy."""
    parts = urlsplit(url)
    return {
        "https": "on" if parts.scheme == "https" else "off",
        "http_host": parts.netloc,
        "script_name": "",
        "path_info": parts.path,
        "get_data": {},
        "post_data": {},
    }
