"""Takes out of an expression of PromQL what it asks for. It knows what our dashboards and alerts use, and refuses the
rest."""

import re
from collections.abc import Iterator
from typing import NamedTuple

TOKEN = re.compile(
    r"""\s*(?:(?P<word>[a-zA-Z_:][\w:]*) | (?P<text>"[^"]*") | (?P<range>\[\d+[smhd]\]) | (?P<number>\d+(?:\.\d+)?)
    | (?P<sign>=~|!~|!=|>=|<=|==|[-+*/<>(){},=]))""",
    re.X,
)
AGGREGATIONS = {"sum", "min", "max", "avg", "count"}
FUNCTIONS = {"absent", "histogram_quantile", "label_values"}
GROUPING = {"by", "without"}


class Selector(NamedTuple):
    """`labels` with the value that each must have; None where it is no single one."""

    name: str
    labels: dict[str, str | None]


class Asked(NamedTuple):
    selectors: list[Selector]
    grouped: set[str]


def tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text.rstrip()):
        found = TOKEN.match(text, at)
        if not found or not found.lastgroup:
            raise ValueError(f"not understood at {at}: {text}")
        yield found.lastgroup, found[found.lastgroup]
        at = found.end()


def parse_query(text: str) -> Asked:
    left = list(tokens(text))
    if [sign for _, sign in left].count("(") != [sign for _, sign in left].count(")"):
        raise ValueError(f"parentheses: {text}")
    selectors: list[Selector] = []
    grouped: set[str] = set()
    while left:
        kind, word = left.pop(0)
        if kind != "word":
            continue
        if word in GROUPING:
            grouped.update(_names(left))
        elif word in AGGREGATIONS | FUNCTIONS:
            if not left or left[0][1] not in {"(", *GROUPING}:
                raise ValueError(f"{word} of nothing: {text}")
        else:
            selectors.append(Selector(word, _matchers(left)))
    return Asked(selectors, grouped)


def _names(left: list[tuple[str, str]]) -> Iterator[str]:
    _take(left, "(")
    while (token := left.pop(0))[1] != ")":
        if token[0] == "word":
            yield token[1]


def _matchers(left: list[tuple[str, str]]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    if not left or left[0][1] != "{":
        return found
    left.pop(0)
    while left[0][1] != "}":
        (_, label), (_, sign), (kind, value) = left.pop(0), left.pop(0), left.pop(0)
        if kind != "text" or sign not in {"=", "!=", "=~", "!~"}:
            raise ValueError(f"{label}{sign}{value} selects nothing")
        found[label] = value[1:-1] if sign == "=" else None
        if left[0][1] == ",":
            left.pop(0)
    left.pop(0)
    return found


def _take(left: list[tuple[str, str]], wanted: str) -> None:
    if not left or left.pop(0)[1] != wanted:
        raise ValueError(f"{wanted} is missing")
