"""MLflow's language of filters: comparisons joined by AND, and the order of results. Pure.

metrics.loss < 0.3 AND params.optimizer = 'adam' AND tags."my tag" LIKE '%x%' AND attributes.status IN ('FINISHED')
"""

import re
from dataclasses import dataclass

MAX_LENGTH, MAX_CONDITIONS, MAX_ORDERS = 4_000, 20, 5
OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "LIKE", "ILIKE", "IN", "NOT IN", "IS NULL", "IS NOT NULL")
_KINDS = {
    "metric": "metric", "metrics": "metric", "param": "param", "params": "param", "parameter": "param",
    "parameters": "param", "tag": "tag", "tags": "tag", "attribute": "attribute", "attributes": "attribute",
    "attr": "attribute", "run": "attribute",
}  # fmt: skip
_KEY = re.compile(r"""\s*(?:([A-Za-z]+)\.)?(?:`([^`]*)`|"([^"]*)"|([A-Za-z0-9_][\w./:\-]*))""")
_OPERATOR = re.compile(r"\s*(!=|<=|>=|=|<|>|NOT\s+IN\b|IN\b|I?LIKE\b|IS\s+NOT\s+NULL\b|IS\s+NULL\b)", re.IGNORECASE)
_VALUE = re.compile(r"""\s*('(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|-?[\w.+\-]+)""")
_AND = re.compile(r"\s+AND\s+|\s*$", re.IGNORECASE)


class FilterError(Exception):
    """Raised for a filter that cannot be understood. `position`: of the character from which on."""

    def __init__(self, position: int, found: str) -> None:
        super().__init__(f"{found!r} at {position}")
        self.position, self.found = position, found


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison. `kind`: metric, param, tag or attribute; `values`: of IN several, of IS NULL none."""

    kind: str
    key: str
    operator: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """What results are sorted by."""

    kind: str
    key: str
    descending: bool


def parse_filter(text: str) -> list[Condition]:
    """Return the conditions of a filter. Raises FilterError."""
    if len(text) > MAX_LENGTH:
        raise FilterError(MAX_LENGTH, text[MAX_LENGTH : MAX_LENGTH + 20])
    found: list[Condition] = []
    at = 0
    while text[at:].strip():
        if len(found) == MAX_CONDITIONS:
            raise FilterError(at, text[at : at + 20])
        kind, key, at = _read_key(text, at)
        operator = _OPERATOR.match(text, at)
        if operator is None:
            raise FilterError(at, text[at : at + 20])
        word, at = " ".join(operator[1].upper().split()), operator.end()
        values: tuple[str, ...] = ()
        if word.endswith("IN"):
            values, at = _read_list(text, at)
        elif not word.startswith("IS"):
            value, at = _read_value(text, at)
            values = (value,)
        found.append(Condition(kind, key, word, values))
        end = _AND.match(text, at)
        if end is None:
            raise FilterError(at, text[at : at + 20])
        at = end.end()
    return found


def parse_orders(texts: list[str]) -> list[Order]:
    """Return what results are sorted by. Raises FilterError."""
    found = []
    for text in texts[:MAX_ORDERS]:
        kind, key, at = _read_key(text[:MAX_LENGTH], 0)
        rest = text[at:].strip().upper()
        if rest not in ("", "ASC", "DESC"):
            raise FilterError(at, text[at : at + 20])
        found.append(Order(kind, key, rest == "DESC"))
    return found


def _read_key(text: str, at: int) -> tuple[str, str, int]:
    match = _KEY.match(text, at)
    if match is None:
        raise FilterError(at, text[at : at + 20])
    kind = _KINDS.get((match[1] or "attribute").lower())
    if kind is None:
        raise FilterError(at, match[1])
    return kind, next(part for part in match.groups()[1:] if part is not None), match.end()


def _read_value(text: str, at: int) -> tuple[str, int]:
    match = _VALUE.match(text, at)
    if match is None:
        raise FilterError(at, text[at : at + 20])
    value = match[1]
    if value[0] in "'\"":
        value = re.sub(r"\\(.)", r"\1", value[1:-1]).replace("''", "'")
    return value, match.end()


def _read_list(text: str, at: int) -> tuple[tuple[str, ...], int]:
    start = re.compile(r"\s*\(").match(text, at)
    if start is None:
        raise FilterError(at, text[at : at + 20])
    values: list[str] = []
    at = start.end()
    while len(values) < 100:
        value, at = _read_value(text, at)
        values.append(value)
        mark = re.compile(r"\s*([,)])").match(text, at)
        if mark is None:
            break
        at = mark.end()
        if mark[1] == ")":
            return tuple(values), at
    raise FilterError(at, text[at : at + 20])
