"""What a provider said of a person, in an assertion that was checked."""

from dataclasses import asdict, dataclass
from typing import Any

TRANSIENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:transient"
EMAIL = "urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress"


@dataclass(frozen=True, slots=True)
class SamlAnswer:
    """`request_id`: the request of ours that it answers."""

    request_id: str
    name_id: str
    name_id_format: str
    attributes: dict[str, list[str]]

    def serialize(self) -> dict[str, Any]:
        """Return it as a session stores it."""
        return asdict(self)
