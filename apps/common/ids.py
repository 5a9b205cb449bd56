"""Public ids: short, lower case, safe in DNS names, file names and shell words."""

import secrets

_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # no 0/o, 1/l/i: people read these aloud


def new_id(prefix: str, length: int = 10) -> str:
    """Return an id such as `task-7kq2m9x4td`: about 50 random bits, so that a collision need not be handled."""
    number, letters = secrets.randbelow(len(_ALPHABET) ** length), []
    for _ in range(length):
        number, index = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[index])
    return f"{prefix}-{''.join(letters)}"
