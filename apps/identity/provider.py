"""The provider classes that this app adds to allauth's, which looks for them in a module of this name."""

from apps.identity.oidc.provider import OpenIdProvider
from apps.identity.saml.provider import SamlProvider

provider_classes = [OpenIdProvider, SamlProvider]
