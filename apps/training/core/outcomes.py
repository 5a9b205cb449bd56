"""Which ends of attempts have one cause: what a rule found, an exception and its line, a signal, an exit code. Equal
failures of different tasks differ in ranks, nodes and figures, and only in these."""

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson

from apps.common.encoding import encode
from fermi.diagnosis import rules

LEFT_OUT = "…"
"""Stands for what differs from one failure to the next."""
LONGEST = 300
TOLD = frozenset({"exception", "at", "why", "about"})
"""Parameters by which failures with one code differ."""
_TELLS = ("signal", "exitCode", "place")
_PLACES = frozenset({"rank", "node", "peer", "peerNode", "gpu", "pci"})
_EXTRA = frozenset({"again", "step", "times", "left", "seconds"})
"""Parameters that a text does without."""
_FIGURE = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")


def stored(outcome: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what an attempt's row keeps of its end, by field."""
    return {"outcome": outcome, "outcome_params": dict(params), "cause": key(outcome, params)}


def key(outcome: str, params: Mapping[str, Any]) -> str:
    """Returns what ends of one cause have in common: 16 hexadecimal digits."""
    return blake2b(encode([outcome, _essence(params)], orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def common(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `params` as every end of the same cause has them: with `LEFT_OUT` for what differs."""
    told: dict[str, Any] = {name: LEFT_OUT for name in params if name not in _EXTRA}
    about = params.get("about")
    if isinstance(about, Mapping):
        told["about"] = dict.fromkeys(about, LEFT_OUT) | _shared(about)
    return told | {name: value for name, value in _essence(params).items() if name != "about"}


def _essence(params: Mapping[str, Any]) -> dict[str, Any]:
    """A rule says more than the exception that it knows."""
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
