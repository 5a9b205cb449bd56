"""Encryption of stored values, with a key derived from FERMI_SECRET_KEY.

After FERMI_SECRET_KEY was changed the values cannot be decrypted (`DecryptionError`) and have to be set again.
"""

from base64 import urlsafe_b64encode
from functools import lru_cache
from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:  # six megabytes in each process; most of them never open anything
    from cryptography.fernet import Fernet


class DecryptionError(Exception):
    """The value was encrypted with another FERMI_SECRET_KEY, or the row was damaged."""


def encrypt_value(value: str) -> str:
    """Return the value encrypted, as text."""
    return _make_fernet(settings.SECRET_KEY).encrypt(value.encode()).decode()


def decrypt_value(sealed: str) -> str:
    """Return the decrypted value. Raises DecryptionError."""
    from cryptography.fernet import InvalidToken

    try:
        return _make_fernet(settings.SECRET_KEY).decrypt(sealed.encode()).decode()
    except InvalidToken as error:
        raise DecryptionError from error


@lru_cache(maxsize=2)
def _make_fernet(secret_key: str) -> "Fernet":
    """Return the cipher. Its key is derived under a label of its own, so that it reveals nothing about the keys that
    sign sessions."""
    from cryptography.fernet import Fernet
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"fermi: secrets of projects").derive(
        secret_key.encode()
    )
    return Fernet(urlsafe_b64encode(derived))
