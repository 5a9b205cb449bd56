"""Until when certificates and tokens say that they are valid."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from fermi.engines.certificates import CredentialExpiry, read_expiries, read_jwt_claims
from tests.certificates import certificate

SOON, LATER = datetime(2026, 12, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)


def jwt(**said: Any) -> bytes:
    parts = ({"alg": "RS256"}, said)
    return b".".join([*(base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in parts), b"c2ln"])


def test_our_certificate_is_the_first_of_a_chain() -> None:
    chain = certificate(LATER)[0] + certificate(SOON)[0]
    [found] = read_expiries("certificate", "/tls.crt", chain)
    assert found == CredentialExpiry("certificate", "/tls.crt", (LATER - YEAR).timestamp(), LATER.timestamp())


def test_one_valid_authority_is_enough() -> None:
    [found] = read_expiries("authority", "/ca.crt", certificate(SOON)[0] + certificate(LATER)[0] + certificate(SOON)[0])
    assert found.ends == LATER.timestamp()


def test_a_certificate_may_be_der() -> None:
    content = x509.load_pem_x509_certificate(certificate(SOON)[0]).public_bytes(Encoding.DER)
    assert [one.ends for one in read_expiries("certificate", "", content)] == [SOON.timestamp()]


def test_a_tokens_expiry_is_read() -> None:
    assert list(read_expiries("token", "t", jwt(exp=200, iat=100) + b"\n")) == [
        CredentialExpiry("token", "t", 100.0, 200.0)
    ]
    assert list(read_expiries("token", "t", jwt(exp=200.5))) == [CredentialExpiry("token", "t", 0.0, 200.5)]


@pytest.mark.parametrize("content", [jwt(), jwt(exp="soon"), b"opaque", b"a.b.c", b"", b"a.W10.c", b"\xff\xfe"])
def test_a_token_without_expiry_never_expires(content: bytes) -> None:
    assert list(read_expiries("token", "t", content)) == []


@given(st.binary(max_size=200), st.sampled_from(["token", "certificate", "authority"]), st.booleans())
def test_arbitrary_file_contents_do_not_raise(content: bytes, kind: Any, pem: bool) -> None:
    text = b"-----BEGIN CERTIFICATE-----\n" + base64.b64encode(content) + b"\n-----END CERTIFICATE-----\n"
    assert list(read_expiries(kind, "x", text if pem else content)) == []
    assert read_jwt_claims(content.decode(errors="replace")) == {}
