"""The provider classes that this app adds to allauth's, which looks for them in a module of this name."""

from apps.identity.oidc.provider import OpenIdProvider
from apps.identity.saml.provider import SamlProvider
from apps.identity.vendors.provider import VendorProvider

provider_classes = [OpenIdProvider, SamlProvider, VendorProvider]
