"""Tokens of hosts and workers: long and random, so that storing a plain hash is safe."""

import hashlib
import secrets


def make_token(prefix: str) -> str:
    return f"{prefix}_{secrets.token_urlsafe(32)}"


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
