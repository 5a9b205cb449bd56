"""Groups ends of attempts by cause: by the rule that matched, by an exception and its line, by a signal, by an exit
code. Equal failures of different tasks differ only in ranks, nodes and numbers."""

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson

from apps.common.encoding import encode
from fermi.diagnosis import rules

LEFT_OUT = "…"
"""Stands in a text for what differs from one failure to the next."""
LONGEST = 300
TOLD = frozenset({"exception", "at", "why", "about"})
"""Parameters in which failures with the same code differ."""
_TELLS = ("signal", "exitCode", "place")
_PLACES = frozenset({"rank", "node", "peer", "peerNode", "gpu", "pci"})
_EXTRA = frozenset({"again", "step", "times", "left", "seconds"})
"""Parameters that a text does without."""
_FIGURE = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")


def stored(outcome: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of an attempt's row that hold its outcome."""
    return {"outcome": outcome, "outcome_params": dict(params), "cause": key(outcome, params)}


def key(outcome: str, params: Mapping[str, Any]) -> str:
    """Return the key that ends with the same cause share: 16 hexadecimal digits."""
    return blake2b(encode([outcome, _essence(params)], orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def common(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return `params` as all ends of the same cause have them, with PLACEHOLDER for what differs."""
    told: dict[str, Any] = {name: LEFT_OUT for name in params if name not in _EXTRA}
    about = params.get("about")
    if isinstance(about, Mapping):
        told["about"] = dict.fromkeys(about, LEFT_OUT) | _shared(about)
    return told | {name: value for name, value in _essence(params).items() if name != "about"}


def _essence(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that identify the cause. A matched rule says more than the exception that it covers."""
    if why := params.get("why"):
        about = params.get("about") or {}
        return {"why": why, "about": {"rule": about.get("rule")} if why == rules.OWN else _shared(about)}
    if exception := params.get("exception"):
        return {"exception": _masked(str(exception)), "at": str(params.get("at", ""))}
    return {name: params[name] for name in _TELLS if isinstance(params.get(name), str | int)}


def _shared(about: Mapping[str, Any]) -> dict[str, str]:
    return {name: _masked(value) for name, value in about.items() if isinstance(value, str) and name not in _PLACES}


def _masked(text: str) -> str:
    return _FIGURE.sub(LEFT_OUT, text)[:LONGEST]
