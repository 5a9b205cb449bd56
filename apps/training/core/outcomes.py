"""Groups ends of attempts by cause: by the rule that matched, by an exception and its line, by a signal, by an exit
code. Equal failures of different tasks differ only in ranks, nodes and numbers."""

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson

from apps.common.encoding import encode_json
from fermi.diagnosis import rules

PLACEHOLDER = "…"
"""Stands in a text for what differs from one failure to the next."""
MAX_MASKED_LENGTH = 300
DISTINGUISHING_PARAMS = frozenset({"exception", "at", "why", "about"})
"""Parameters in which failures with the same code differ."""
_FALLBACK_PARAMS = ("signal", "exitCode", "place")
_LOCATION_PARAMS = frozenset({"rank", "node", "peer", "peerNode", "gpu", "pci"})
_OPTIONAL_PARAMS = frozenset({"again", "step", "times", "left", "seconds"})
"""Parameters that a text does without."""
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")


def build_outcome_columns(outcome: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of an attempt's row that hold its outcome."""
    return {"outcome": outcome, "outcome_params": dict(params), "cause": compute_cause_key(outcome, params)}


def compute_cause_key(outcome: str, params: Mapping[str, Any]) -> str:
    """Return the key that ends with the same cause share: 16 hexadecimal digits."""
    return blake2b(encode_json([outcome, _extract_signature(params)], orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def mask_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return `params` as all ends of the same cause have them, with PLACEHOLDER for what differs."""
    told: dict[str, Any] = {name: PLACEHOLDER for name in params if name not in _OPTIONAL_PARAMS}
    about = params.get("about")
    if isinstance(about, Mapping):
        told["about"] = dict.fromkeys(about, PLACEHOLDER) | _mask_shared_params(about)
    return told | {name: value for name, value in _extract_signature(params).items() if name != "about"}


def _extract_signature(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that identify the cause. A matched rule says more than the exception that it covers."""
    if why := params.get("why"):
        about = params.get("about") or {}
        return {
            "why": why,
            "about": {"rule": about.get("rule")} if why == rules.PROJECT_RULE else _mask_shared_params(about),
        }
    if exception := params.get("exception"):
        return {"exception": _mask_numbers(str(exception)), "at": str(params.get("at", ""))}
    return {name: params[name] for name in _FALLBACK_PARAMS if isinstance(params.get(name), str | int)}


def _mask_shared_params(params: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: _mask_numbers(value)
        for name, value in params.items()
        if isinstance(value, str) and name not in _LOCATION_PARAMS
    }


def _mask_numbers(text: str) -> str:
    return _NUMBER.sub(PLACEHOLDER, text)[:MAX_MASKED_LENGTH]
