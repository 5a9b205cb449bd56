"""Secrets of hosts and workers: long and random, so that a plain hash of one is all that is kept."""

import hashlib
import secrets


def make(prefix: str) -> str:
    return f"{prefix}_{secrets.token_urlsafe(32)}"


def digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
