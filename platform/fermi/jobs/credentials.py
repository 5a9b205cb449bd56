"""Guesses whether a variable is a secret, by its name or its value, in order to warn and to hide its value from
viewers."""

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from fermi.jobs.spec import Problem

_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIALS?)(?:_|$)", re.IGNORECASE
)
_PUBLIC = re.compile(r"(?:^|_)(?:PATH|FILE|DIR|COMMIT|SHA\d*|HASH|DIGEST|CHECKSUM|REVISION|UUID|ID)$", re.IGNORECASE)
_SHAPES = re.compile(
    r"sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_\w{16,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}"
    r"|xox[abprs]-[\w-]{10,}|fermi_[0-9a-f]{32,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@\S*"
)
"""Keys as their makers write them: OpenAI, GitHub, GitLab, Hugging Face, AWS, Google, Slack, our own API tokens, JSON
Web Tokens, and addresses with a password."""
_PEM = "-----BEGIN "
_DENSE = re.compile(r"[A-Za-z0-9+/_=-]{32,}")
_HARMLESS = re.compile(r".{0,3}|[\d.]{0,8}|true|false|yes|no|on|off|none|/.*", re.IGNORECASE | re.DOTALL)
MIN_ENTROPY = 3.3  # bits a character; random hexadecimal digits have up to 4, words and numbers fewer
MASK = "••••••"


def looks_secret(name: str, value: str) -> bool:
    """Return whether a variable's name or value looks like a secret's."""
    if _PUBLIC.search(name) or _HARMLESS.fullmatch(value):
        return False
    if _NAME.search(name) or _SHAPES.fullmatch(value) or (_PEM in value and "PRIVATE KEY" in value):
        return True
    return bool(_DENSE.fullmatch(value)) and any(map(str.isdigit, value)) and _compute_entropy(value) >= MIN_ENTROPY


def _compute_entropy(text: str) -> float:
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def find_warnings(env: Mapping[str, str]) -> list[Problem]:
    """Return a warning for each variable that looks like a secret."""
    found = [name for name, value in env.items() if looks_secret(name, value)]
    return [Problem(f"env.{name}", "ENV_LOOKS_SECRET", {"name": name}) for name in found]


def mask_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with the values of those that look secret masked."""
    return {name: MASK if looks_secret(name, value) else value for name, value in env.items()}


def mask_keys(text: str) -> str:
    """Return the text with everything masked that has the shape of a key."""
    return _SHAPES.sub(MASK, text)


def redact_secrets(content: Any, env: Mapping[str, str]) -> Any:
    """Return rendered content in which the values of `env` that look secret are masked wherever they occur."""
    values = sorted({value for name, value in env.items() if looks_secret(name, value)}, key=len, reverse=True)
    return _redact(content, values) if values else content


def _redact(content: Any, values: list[str]) -> Any:
    if isinstance(content, str):
        for value in values:
            content = content.replace(value, MASK)
        return content
    if isinstance(content, Mapping):
        return {name: _redact(inner, values) for name, inner in content.items()}
    return [_redact(inner, values) for inner in content] if isinstance(content, list) else content
