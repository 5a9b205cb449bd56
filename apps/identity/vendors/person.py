"""What all vendors have in common: who signed in, and how a sign-in is begun and ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from allauth.socialaccount.models import SocialApp

MAX_GROUPS = 200
MAX_ID_LENGTH = 191


@dataclass(frozen=True, slots=True)
class VendorPerson:
    """Who signed in. `uid`: what the vendor knows the person by, within `tenant`, the organisation that the person
    signed in with; "" where the vendor names none. `claims`: what role rules read and accounts store."""

    uid: str
    tenant: str
    name: str = ""
    username: str = ""
    groups: tuple[str, ...] | None = None
    ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def claims(self) -> dict[str, Any]:
        """Return the claims in the shape of OpenID Connect's. Telephone numbers, pictures and addresses are left out:
        the vendors have not verified them, and nothing needs them."""
        info: dict[str, Any] = {**self.ids, "sub": self.uid, "tenant": self.tenant, "name": self.name[:150]}
        if self.groups is not None:
            info["groups"] = list(self.groups[:MAX_GROUPS])
        return {"userinfo": {**info, "preferred_username": self.username[:150]}}


class Vendor(Protocol):
    """`tenant_setting`: the setting that names the only organisation whose people may sign in; "" where the client's id
    does."""

    @property
    def tenant_setting(self) -> str: ...

    @property
    def has_pkce(self) -> bool: ...

    def build_sign_in_url(self, app: SocialApp, callback_url: str, state: str, challenge: Mapping[str, str]) -> str:
        """Return the address at the vendor where people sign in."""

    def fetch_person(self, app: SocialApp, code: str, callback_url: str, verifier: str) -> VendorPerson:
        """Return whose code it is. Raises SignInError and requests.RequestException."""


def make_id(value: Any) -> str:
    """Return an identifier of a vendor's answer, or "" where there is none that can be stored."""
    return value if isinstance(value, str) and 0 < len(value) <= MAX_ID_LENGTH else ""


def list_groups(kind: str, values: Any) -> list[str]:
    """Return texts such as `department:12` of a vendor's list of ids."""
    found = values if isinstance(values, list) else []
    return [f"{kind}:{one}"[:MAX_ID_LENGTH] for one in found[:MAX_GROUPS] if isinstance(one, (str, int)) and one != ""]
