"""A provider as all parts read it, from the table or from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.identity.models import ProviderKind

ALLAUTH_PROVIDERS: Mapping[str, str] = {
    ProviderKind.OPENID_CONNECT: "openid_connect",
    ProviderKind.GOOGLE: "openid_connect",
    ProviderKind.GITLAB: "openid_connect",
    ProviderKind.MICROSOFT: "openid_connect",
    ProviderKind.OKTA: "openid_connect",
    ProviderKind.KEYCLOAK: "openid_connect",
    ProviderKind.AUTHENTIK: "openid_connect",
    ProviderKind.FEISHU: "vendor_login",
    ProviderKind.LARK: "vendor_login",
    ProviderKind.DINGTALK: "vendor_login",
    ProviderKind.WECOM: "vendor_login",
    ProviderKind.SAML: "saml",
}
"""The provider class of allauth by kind. `apps.identity.starts` lists the kinds that people can sign in by."""


@dataclass(frozen=True, slots=True)
class ProviderConfiguration:
    """A provider with its decrypted secret. `readonly`: it comes from the environment; the API does not change it."""

    id: str
    kind: str
    name: str
    client_id: str = ""
    secret: str = field(default="", repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict)
    enabled: bool = True
    readonly: bool = False
