"""SAML 2.0 as allauth sees it: where a sign-in begins, and what an account has from an assertion."""

from typing import Any

from allauth.account.models import EmailAddress
from allauth.socialaccount.helpers import render_authentication_error
from allauth.socialaccount.providers.saml.provider import SAMLProvider
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from apps.identity.errors import SignInError
from apps.identity.paths import get_safe_path, make_saml_url
from apps.identity.saml.answers import EMAIL, TRANSIENT, SamlAnswer
from apps.identity.saml_settings import get_attribute_names

MAX_UID_LENGTH = 191
OVERAGE = "http://schemas.microsoft.com/claims/groups.link"
"""Entra ID sends this attribute in place of the groups of somebody who has more than 150."""


class SamlProvider(SAMLProvider):
    def redirect(
        self, request: HttpRequest, process: str, next_url: str | None = None, data: Any = None, **kwargs: Any
    ) -> HttpResponse:
        """Send the browser to the provider. Where it goes afterwards is stored here, not sent along as RelayState."""
        from apps.identity.saml import messages  # with xmlsec: for sign-ins alone

        try:
            url, request_id = messages.make_request(self.app.settings, make_addresses(request, self.sub_id))
        except (ValueError, KeyError) as error:
            failure = SignInError("IDENTITY_SAML_SETTINGS", str(error)[:300])
            return render_authentication_error(request, self, exception=failure)
        self.stash_redirect_state(request, process, get_safe_path(next_url), data, state_id=request_id, **kwargs)
        return HttpResponseRedirect(url)

    def extract_uid(self, data: SamlAnswer) -> str:
        """Return by what the provider knows the person: the NameID, or the attribute that the settings name, which is
        never replaced by the NameID. Raises SignInError."""
        if names := get_attribute_names(self.app.settings, "uid"):
            uid = _find_value(data, names)
        elif data.name_id_format == TRANSIENT:
            raise SignInError("IDENTITY_SAML_TRANSIENT")
        else:
            uid = data.name_id
        if not uid or len(uid) > MAX_UID_LENGTH:
            raise SignInError("IDENTITY_UID_MISSING")
        return uid

    def extract_extra_data(self, data: SamlAnswer) -> dict[str, Any]:
        """Return the attributes, with the groups of whatever name as `groups`, which rules for roles read."""
        names = get_attribute_names(self.app.settings, "groups")
        groups = dict.fromkeys(value for name in names for value in data.attributes.get(name, ()))
        claims: dict[str, Any] = {**data.attributes, "groups": list(groups)}
        if not groups and OVERAGE in data.attributes:
            claims["hasgroups"] = "true"
        return claims

    def extract_common_fields(self, data: SamlAnswer) -> dict[str, Any]:
        fields = ("email", "first_name", "last_name", "username")
        found = {field: _find_value(data, get_attribute_names(self.app.settings, field)) for field in fields}
        if not found["email"] and data.name_id_format == EMAIL:
            found["email"] = data.name_id
        return {field: value[:150] for field, value in found.items() if value}

    def extract_email_addresses(self, data: SamlAnswer) -> list[EmailAddress]:
        email = self.extract_common_fields(data).get("email")
        if not email:
            return []
        said = _find_value(data, get_attribute_names(self.app.settings, "email_verified"))
        verified = self.app.settings.get("vouches_for_emails") is True or (said or "").lower() in ("true", "1")
        return [EmailAddress(email=email, verified=verified, primary=True)]


def make_addresses(request: HttpRequest, provider_id: str) -> Any:
    """Return where the provider finds this platform, a `messages.PlatformAddresses`."""
    from apps.identity.saml.messages import PlatformAddresses

    return PlatformAddresses(
        consumer=make_saml_url(request, provider_id, "acs"), metadata=make_saml_url(request, provider_id, "metadata")
    )


def _find_value(data: SamlAnswer, names: tuple[str, ...]) -> str:
    """Return the first value of the first attribute that has one, or ""."""
    return next((value for name in names for value in data.attributes.get(name, ()) if value), "")
