"""Read from certificates and tokens until when they are valid."""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

CredentialKind = Literal["certificate", "authority", "token"]
"""A certificate that we identify ourselves with, one that we trust, or a token of ours."""


@dataclass(frozen=True, slots=True)
class CredentialExpiry:
    """Validity of a certificate or token. `where`: the file that it is in. `begins`, `ends`: unix seconds; 0: no
    beginning is given."""

    kind: CredentialKind
    where: str
    begins: float
    ends: float


def read_expiries(kind: CredentialKind, path: str, content: bytes) -> Iterator[CredentialExpiry]:
    """Yield the validity of what is in a file; nothing where it does not expire or cannot be parsed."""
    found = _read_token_period(content) if kind == "token" else _read_certificate_period(kind, content)
    if found:
        yield CredentialExpiry(kind, path, *found)


def read_jwt_claims(token: str) -> Mapping[str, Any]:
    """Return the claims of a JWT without verifying it; empty for any other text."""
    try:
        part = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _read_token_period(content: bytes) -> tuple[float, float] | None:
    said = read_jwt_claims(content.decode(errors="replace").strip())
    begins, ends = (said.get(name) for name in ("iat", "exp"))
    if not isinstance(ends, (int, float)):
        return None
    return float(begins) if isinstance(begins, (int, float)) else 0.0, float(ends)


def _read_certificate_period(kind: CredentialKind, content: bytes) -> tuple[float, float] | None:
    """Return the validity of PEM or DER certificates. The first is our own, which others may have signed; of trusted
    ones a single valid one is enough, so the longest counts."""
    from cryptography import x509  # rendering jobs does not need it

    try:
        known = (
            x509.load_pem_x509_certificates(content)
            if b"-----BEGIN" in content
            else [x509.load_der_x509_certificate(content)]
        )
    except ValueError:
        return None
    spans = [(one.not_valid_before_utc.timestamp(), one.not_valid_after_utc.timestamp()) for one in known]
    return max(spans, key=lambda span: span[1]) if kind == "authority" else spans[0]
