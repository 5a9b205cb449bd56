"""Public ids: short, lower case, safe in DNS names, file names and shell words."""

import secrets

_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # no 0/o, 1/l/i: people read these aloud


def new_id(prefix: str, length: int = 10) -> str:
    """`task-7kq2m9x4td`: ~50 bits, so that a collision is a lost lottery rather than a case to handle."""
    return f"{prefix}-" + "".join(secrets.choice(_ALPHABET) for _ in range(length))
