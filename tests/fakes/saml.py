"""An identity provider that speaks SAML 2.0: makes responses that are signed as a real one signs them."""

import base64
import secrets
import zlib
from datetime import timedelta
from functools import cached_property
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from lxml import etree
from onelogin.saml2.constants import OneLogin_Saml2_Constants as Constants
from onelogin.saml2.utils import OneLogin_Saml2_Utils as Utils

from apps.common.clock import now

ENTITY_ID = "https://idp.example.org/metadata"
SSO_URL = "https://idp.example.org/sso"
BEARER = "urn:oasis:names:tc:SAML:2.0:cm:bearer"
NAMESPACES = f'xmlns:samlp="{Constants.NS_SAMLP}" xmlns:saml="{Constants.NS_SAML}"'


class SamlProvider:
    """A provider with a key of its own."""

    @cached_property
    def _key(self) -> rsa.RSAPrivateKey:
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @property
    def key(self) -> str:
        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    @cached_property
    def certificate(self) -> str:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "idp.example.org")])
        made = x509.CertificateBuilder(name, name, self._key.public_key(), x509.random_serial_number())
        made = made.not_valid_before(now() - timedelta(days=1)).not_valid_after(now() + timedelta(days=1))
        return made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    @property
    def metadata(self) -> bytes:
        body = "".join(self.certificate.split("\n")[1:-2])
        return f"""<md:EntityDescriptor xmlns:md="{Constants.NS_MD}" entityID="{ENTITY_ID}"><md:IDPSSODescriptor
 protocolSupportEnumeration="{Constants.NS_SAMLP}"><md:KeyDescriptor use="signing"><ds:KeyInfo
 xmlns:ds="{Constants.NS_DS}"><ds:X509Data><ds:X509Certificate>{body}</ds:X509Certificate></ds:X509Data></ds:KeyInfo>
</md:KeyDescriptor><md:SingleSignOnService Binding="{Constants.BINDING_HTTP_REDIRECT}" Location="{SSO_URL}"/>
</md:IDPSSODescriptor></md:EntityDescriptor>""".encode()

    def make_assertion(
        self,
        consumer: str,
        audience: str,
        *,
        person: str = "ada",
        seconds: int = 300,
        answers: str = "request-1",
        algorithm: str = Constants.RSA_SHA256,
        digest: str = Constants.SHA256,
        signed: bool = True,
        groups: tuple[str, ...] = ("ml",),
        attributes: str = "",
        name_format: str = Constants.NAMEID_PERSISTENT,
        issuer: str = ENTITY_ID,
        confirmation: str | None = None,
        restriction: str | None = None,
    ) -> str:
        """Return an assertion about `person` that is valid for `seconds`. `confirmation`, `restriction`: in place of
        the attributes of SubjectConfirmationData, and of the restriction to an audience."""
        begins, ends = _render(-60), _render(seconds)
        if confirmation is None:
            confirmation = f'NotOnOrAfter="{ends}" Recipient="{consumer}" InResponseTo="{answers}"'
        if restriction is None:
            restriction = (
                f"<saml:AudienceRestriction><saml:Audience>{audience}</saml:Audience></saml:AudienceRestriction>"
            )
        values = "".join(f"<saml:AttributeValue>{one}</saml:AttributeValue>" for one in groups)
        xml = f"""<saml:Assertion {NAMESPACES} ID="_{secrets.token_hex(8)}" Version="2.0" IssueInstant="{begins}">
<saml:Issuer>{issuer}</saml:Issuer><saml:Subject>
<saml:NameID Format="{name_format}">{person}</saml:NameID>
<saml:SubjectConfirmation Method="{BEARER}"><saml:SubjectConfirmationData
 {confirmation}/></saml:SubjectConfirmation></saml:Subject>
<saml:Conditions NotBefore="{begins}" NotOnOrAfter="{ends}">{restriction}</saml:Conditions>
<saml:AuthnStatement AuthnInstant="{begins}" SessionIndex="_s"><saml:AuthnContext>
<saml:AuthnContextClassRef>urn:oasis:names:tc:SAML:2.0:ac:classes:Password</saml:AuthnContextClassRef>
</saml:AuthnContext></saml:AuthnStatement><saml:AttributeStatement><saml:Attribute Name="groups">
{values}</saml:Attribute>{attributes}</saml:AttributeStatement></saml:Assertion>"""
        if not signed:
            return xml
        return Utils.add_sign(xml, self.key, self.certificate, False, algorithm, digest).decode()


def read_request(address: str) -> dict[str, str]:
    """Return the attributes of the request that an address of a sign-in has, and its issuer."""
    query = parse_qs(urlsplit(address).query)
    root = etree.fromstring(zlib.decompress(base64.b64decode(query["SAMLRequest"][0]), -15))
    return {**root.attrib, "Issuer": root.findtext(f"{{{Constants.NS_SAML}}}Issuer")}


def make_response(
    assertion: str,
    consumer: str,
    *,
    answers: str = "request-1",
    before: str = "",
    status: str = Constants.STATUS_SUCCESS,
    doctype: str = "",
) -> str:
    """Return the form field SAMLResponse with the assertion; `before`: XML in front of it."""
    xml = f"""{doctype}<samlp:Response {NAMESPACES} ID="_r" Version="2.0" IssueInstant="{_render(0)}"
 Destination="{consumer}" InResponseTo="{answers}"><saml:Issuer>{ENTITY_ID}</saml:Issuer>
<samlp:Status><samlp:StatusCode Value="{status}"/></samlp:Status>{before}
{assertion}</samlp:Response>"""
    return base64.b64encode(xml.encode()).decode()


def _render(seconds: int) -> str:
    return (now() + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
