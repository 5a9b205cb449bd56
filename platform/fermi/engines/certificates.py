"""Read from certificates and tokens until when they are valid."""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["certificate", "authority", "token"]
"""A certificate that we identify ourselves with, one that we trust, or a token of ours."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Validity of a certificate or token. `where`: the file that it is in. `begins`, `ends`: unix seconds; 0: no
    beginning is given."""

    kind: Kind
    where: str
    begins: float
    ends: float


def endings(kind: Kind, where: str, content: bytes) -> Iterator[Ending]:
    """Yield the validity of what is in a file; nothing where it does not expire or cannot be parsed."""
    found = _of_token(content) if kind == "token" else _of_certificates(kind, content)
    if found:
        yield Ending(kind, where, *found)


def claims(token: str) -> Mapping[str, Any]:
    """Return the claims of a JWT without verifying it; empty for any other text."""
    try:
        part = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _of_token(content: bytes) -> tuple[float, float] | None:
    said = claims(content.decode(errors="replace").strip())
    begins, ends = (said.get(name) for name in ("iat", "exp"))
    if not isinstance(ends, (int, float)):
        return None
    return float(begins) if isinstance(begins, (int, float)) else 0.0, float(ends)


def _of_certificates(kind: Kind, content: bytes) -> tuple[float, float] | None:
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
