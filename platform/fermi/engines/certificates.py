"""Until when certificates and tokens are valid, as they say themselves."""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["certificate", "authority", "token"]
"""What we prove ourselves by; what others do; and a text that is ours."""


@dataclass(frozen=True, slots=True)
class Ending:
    """`where`: the file that it is in. `begins`, `ends`: unix seconds; 0: it does not say since when."""

    kind: Kind
    where: str
    begins: float
    ends: float


def endings(kind: Kind, where: str, content: bytes) -> Iterator[Ending]:
    """Of what is in a file; nothing of what does not end, or cannot be understood."""
    found = _of_token(content) if kind == "token" else _of_certificates(kind, content)
    if found:
        yield Ending(kind, where, *found)


def claims(token: str) -> Mapping[str, Any]:
    """What a JWT says, believed as it stands; empty for any other text."""
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
    """PEM or DER. The first is our own, above which others may stand; of authorities one that is valid is enough."""
    from cryptography import x509  # whoever only renders jobs has no need of it

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
