"""The check that oauthlib 4.0.1 requires of a device code and allauth 65.21 does not have yet."""

from typing import Any

from allauth.idp.oidc.internal.oauthlib.request_validator import OAuthLibRequestValidator
from oauthlib.oauth2.rfc8628.grant_types import DeviceCodeGrant


def add_device_code_check() -> None:
    """Give allauth's validator the check, unless it has one of its own."""
    if not hasattr(OAuthLibRequestValidator, "validate_device_code"):
        OAuthLibRequestValidator.validate_device_code = _validate_device_code


def _validate_device_code(
    validator: OAuthLibRequestValidator, client_id: str, code: str, request: Any, *_: Any, **__: Any
) -> str | None:
    """Return that the code was confirmed: allauth's view has found that out before it calls oauthlib, and has set the
    user, whom no parameter of the request sets. None without one."""
    if vars(request).get("user") is None:
        return None
    request.scopes = vars(request).get("scope") or request.client.get_default_scopes()
    return str(DeviceCodeGrant.DEVICE_CODE_AUTHORIZED)
