"""Values that are stored and never shown, encrypted with a key that follows from FERMI_SECRET_KEY.

Whoever changes FERMI_SECRET_KEY cannot read them any more: that is `Unreadable`, and they have to be set again.
"""

from base64 import urlsafe_b64encode
from functools import lru_cache
from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:  # six megabytes in each process; most of them never open anything
    from cryptography.fernet import Fernet


class Unreadable(Exception):
    """It was sealed with another FERMI_SECRET_KEY, or the row was damaged."""


def seal(value: str) -> str:
    return _fernet(settings.SECRET_KEY).encrypt(value.encode()).decode()


def unseal(sealed: str) -> str:
    from cryptography.fernet import InvalidToken

    try:
        return _fernet(settings.SECRET_KEY).decrypt(sealed.encode()).decode()
    except InvalidToken as error:
        raise Unreadable from error


@lru_cache(maxsize=2)
def _fernet(secret_key: str) -> "Fernet":
    """Under a label of its own, so that the key tells nothing of those that sign sessions."""
    from cryptography.fernet import Fernet
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"fermi: secrets of projects").derive(
        secret_key.encode()
    )
    return Fernet(urlsafe_b64encode(derived))
