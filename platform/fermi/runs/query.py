"""The language of queries over runs: from a text to a tree of conditions, and back.

    status:failed lr>1e-4 tag:baseline metric.val_loss<3.1 -name:test* (owner:ann or owner:bo) age<7d unet

A space means `and`; `or`, `-` and `not`, and parentheses as usual; a word without an operator is searched for in names
and ids. `parse_query` raises only QueryError, which names the place. Positions count characters, from 0.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as define
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.exceptions import VisitError

from fermi.runs.fields import Field, FieldKind, quote_text, resolve_field

MAX_LENGTH, MAX_CONDITIONS, MAX_VALUES, MAX_DEPTH = 2_000, 50, 50, 10
"""Characters of a query, its conditions and words, the values of one condition, and how deep it is nested."""
MAX_SECONDS = 100 * 366 * 86_400


class QueryError(Exception):
    """Something is wrong with a query between two positions. `params` fill the text that `fermi.messages` has for
    `code`."""

    def __init__(self, code: str, start: int, end: int, **params: Any) -> None:
        super().__init__(code)
        self.code, self.start, self.end, self.params = code, start, end, params


class Operator(StrEnum):
    """How a field is compared. `IS`: with one of several values, in which `*` stands for any characters."""

    IS = ":"
    EQUAL = "="
    UNEQUAL = "!="
    BELOW = "<"
    AT_MOST = "<="
    ABOVE = ">"
    AT_LEAST = ">="
    CONTAINS = "~"


_EQUALITY, _ORDER = (Operator.IS, Operator.EQUAL, Operator.UNEQUAL), tuple(map(Operator, ("<", "<=", ">", ">=")))
OPERATORS: Mapping[FieldKind, tuple[Operator, ...]] = {
    FieldKind.TEXT: (*_EQUALITY, Operator.CONTAINS),
    FieldKind.CHOICE: _EQUALITY,
    FieldKind.NUMBER: (*_EQUALITY, *_ORDER),
    FieldKind.TIME: (*_EQUALITY, *_ORDER),
    FieldKind.DURATION: _ORDER,
    FieldKind.MIXED: (*_EQUALITY, *_ORDER, Operator.CONTAINS),
}
"""The operators that a kind of field has."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value that a field is compared with. `number`: of a number, or of a duration in seconds; `begins` and `ends`:
    of a moment, the first of the time that its text means and the first behind it (a day, a minute, a second)."""

    text: str
    quoted: bool = False
    number: float | None = None
    begins: datetime | None = None
    ends: datetime | None = None

    @property
    def is_any(self) -> bool:
        """Return whether it is `*` alone: the field has some value."""
        return not self.quoted and self.text == "*"

    @property
    def is_pattern(self) -> bool:
        """Return whether `*` in it stands for any characters."""
        return not self.quoted and "*" in self.text

    def __str__(self) -> str:
        return quote_text(self.text) if self.quoted else self.text


@dataclass(frozen=True, slots=True)
class Condition:
    """A field compared with values; more than one for Operator.IS alone."""

    field: Field
    operator: Operator
    values: tuple[Value, ...]
    start: int = define(default=0, compare=False)
    end: int = define(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.field}{self.operator}{','.join(map(str, self.values))}"


@dataclass(frozen=True, slots=True)
class Word:
    """A text that the name or the id of a run contains."""

    text: str
    quoted: bool = False
    start: int = define(default=0, compare=False)
    end: int = define(default=0, compare=False)

    def __str__(self) -> str:
        return quote_text(self.text) if self.quoted else self.text


@dataclass(frozen=True, slots=True)
class Negation:
    """All but what `item` matches."""

    item: "Expression"

    def __str__(self) -> str:
        return f"-{_print_part(self.item, And, Or)}"


@dataclass(frozen=True, slots=True)
class And:
    """What all of the items match."""

    items: tuple["Expression", ...]

    def __str__(self) -> str:
        return " ".join(_print_part(item, And, Or) for item in self.items)


@dataclass(frozen=True, slots=True)
class Or:
    """What any of the items matches."""

    items: tuple["Expression", ...]

    def __str__(self) -> str:
        return " or ".join(_print_part(item, Or) for item in self.items)


Expression = Condition | Word | Negation | And | Or


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query. `root`: None for an empty one, which every run matches."""

    root: Expression | None = None

    def __str__(self) -> str:
        return "" if self.root is None else str(self.root)


def _print_part(item: Expression, *in_parentheses: type) -> str:
    return f"({item})" if isinstance(item, in_parentheses) else str(item)


def iterate_conditions(root: Expression | None) -> Iterator[Condition | Word]:
    """Yield the conditions and words of a tree, from left to right. Raises QueryError for one that is nested deeper
    than MAX_DEPTH."""
    left: list[tuple[Expression, int]] = [] if root is None else [(root, 0)]
    while left:
        item, depth = left.pop()
        match item:
            case Condition() | Word():
                if depth > MAX_DEPTH:
                    raise QueryError("QUERY_TOO_DEEP", item.start, item.end, high=MAX_DEPTH)
                yield item
            case Negation():
                left.append((item.item, depth + 1))
            case And() | Or():
                left += [(one, depth + 1) for one in reversed(item.items)]


_HEAD = r'(?:[^\s"():,=<>!~]|"(?:[^"\\]|\\.)*")+\s*(?:!=|<=|>=|[:=<>~])'
_QUOTED, _BARE = r'"(?:[^"\\]|\\.)*"', r'[^\s"(),]+'
_GRAMMAR = rf"""
start: [either]
?either: both (_OR both)*
?both: item (_AND? item)*
?item: (_MINUS | _NOT) item -> negation
     | "(" either ")"
     | HEAD value (_COMMA value)* -> condition
     | (QUOTED | WORD) -> word
?value: QUOTED | BARE

_OR.6: /or(?![^\s()])/i
_AND.6: /and(?![^\s()])/i
_NOT.6: /not(?![^\s()])/i
_MINUS.5: "-"
HEAD.4: /{_HEAD}/s
QUOTED.3: /{_QUOTED}/s
_COMMA: ","
BARE: /{_BARE}/
WORD: /(?!(?:or|and|not)(?![^\s()]))[^\s"(),:=<>!~]+/i

%ignore /\s+/
"""
_OPERATOR = re.compile(r"\s*(!=|<=|>=|[:=<>~])\Z")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def parse_query(text: str) -> Query:
    """Return the query. Raises QueryError for the first thing that is wrong with it."""
    if len(text) > MAX_LENGTH:
        raise QueryError("QUERY_TOO_LONG", MAX_LENGTH, len(text), high=MAX_LENGTH, found=len(text))
    try:
        root: Any = _get_parser().parse(text)
    except UnexpectedInput as unexpected:
        raise _explain_refusal(text, unexpected) from None
    except VisitError as failed:
        raise failed.orig_exc from None
    for number, condition in enumerate(iterate_conditions(root)):
        if number == MAX_CONDITIONS:
            raise QueryError("QUERY_TOO_MANY_CONDITIONS", condition.start, len(text), high=MAX_CONDITIONS)
    return Query(root)


@cache
def _get_parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", transformer=_TreeBuilder(), maybe_placeholders=False)


class _TreeBuilder(Transformer[Token, Expression | None]):
    """Builds the tree while it is parsed, from the leaves on."""

    def start(self, items: list[Expression]) -> Expression | None:
        return items[0] if items else None

    def either(self, items: list[Expression]) -> Expression:
        return Or(tuple(items))

    def both(self, items: list[Expression]) -> Expression:
        return And(tuple(items))

    def negation(self, items: list[Expression]) -> Expression:
        return Negation(items[0])

    def word(self, items: list[Token]) -> Expression:
        [token] = items
        text, quoted = _read_text(token)
        start, end = _get_range(token)
        return Word(text, quoted, start, end)

    def condition(self, items: list[Token]) -> Expression:
        return _build_condition(items[0], items[1:])


def _get_range(token: Token) -> tuple[int, int]:
    start = token.start_pos or 0
    return start, start + len(token)


def _read_text(token: Token) -> tuple[str, bool]:
    """Return the text that a token means, and whether it is in quotes."""
    return (_ESCAPED.sub(r"\1", token[1:-1]), True) if token.type == "QUOTED" else (str(token), False)


def _build_condition(head: Token, tokens: Sequence[Token]) -> Condition:
    start, end = _get_range(head)
    found = _OPERATOR.search(head)
    assert found is not None  # the head's pattern ends with one
    operator, written = Operator(found[1]), head[: found.start()]
    name = "".join(
        _ESCAPED.sub(r"\1", part[1:-1]) if part.startswith('"') else part
        for part in re.findall(rf'{_QUOTED}|[^"]+', written, re.DOTALL)
    )
    field = resolve_field(name)
    if field is None:
        raise QueryError("QUERY_NAME_EXPECTED", start, start + len(written), found=written[:100])
    allowed = OPERATORS[field.kind]
    if operator not in allowed:
        raise QueryError(
            "QUERY_OPERATOR_UNSUITABLE", start + found.start(1), end,
            name=name, operator=operator.value, allowed=" ".join(allowed),
        )  # fmt: skip
    if len(tokens) > MAX_VALUES:
        raise QueryError("QUERY_TOO_MANY_VALUES", *_get_range(tokens[MAX_VALUES]), name=name, high=MAX_VALUES)
    if len(tokens) > 1 and operator is not Operator.IS:
        raise QueryError("QUERY_ONE_VALUE_EXPECTED", *_get_range(tokens[1]), name=name, operator=operator.value)
    values = tuple(_read_value(field, operator, token) for token in tokens)
    return Condition(field, operator, values, start, _get_range(tokens[-1])[1])


def _read_value(field: Field, operator: Operator, token: Token) -> Value:
    """Return the value that a token means for a field. Raises QueryError for one that the field cannot have."""
    text, quoted = _read_text(token)
    value = Value(text, quoted)
    if operator is Operator.IS and value.is_any:
        return value
    name, place = str(field), _get_range(token)
    match field.kind:
        case FieldKind.CHOICE:
            if text.lower() not in field.choices:
                allowed = ", ".join(field.choices)
                raise QueryError("QUERY_CHOICE_UNKNOWN", *place, name=name, value=text[:100], allowed=allowed)
            return Value(text.lower(), quoted)
        case FieldKind.NUMBER:
            return Value(text, quoted, _require(parse_number(text), "QUERY_NUMBER_EXPECTED", place, name, text))
        case FieldKind.DURATION:
            return Value(text, quoted, _require(parse_duration(text), "QUERY_DURATION_EXPECTED", place, name, text))
        case FieldKind.TIME:
            begins, ends = _require(parse_time(text), "QUERY_TIME_EXPECTED", place, name, text)
            return Value(text, quoted, begins=begins, ends=ends)
        case FieldKind.MIXED if operator in _ORDER:
            return Value(text, quoted, _require(parse_number(text), "QUERY_NUMBER_EXPECTED", place, name, text))
        case FieldKind.MIXED if not quoted and operator is not Operator.CONTAINS:
            return Value(text, quoted, parse_number(text))
    return value


def _require(found: Any, code: str, place: tuple[int, int], name: str, text: str) -> Any:
    if found is None:
        raise QueryError(code, *place, name=name, value=text[:100])
    return found


_NUMBER = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([kKMGT%]?)")
_FACTORS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "%": 0.01}


def parse_number(text: str) -> float | None:
    """Return the number that a text means (`3`, `1e-4`, `10k`, `2.5M`, `90%`); None if it is no finite one."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    number = float(found[1]) * _FACTORS[found[2]] if found[2] else float(found[1])
    return number if math.isfinite(number) else None


_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smhdw])+")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def parse_duration(text: str) -> float | None:
    """Return a duration (`90s`, `5m`, `1h30m`, `7d`, `2w`) in seconds; None if it is none, or longer than a century."""
    if not _DURATION.fullmatch(text):
        return None
    parts = re.findall(r"([0-9.]+)([smhdw])", text)
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    return seconds if seconds <= MAX_SECONDS else None


_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})(?:-([0-9]{2})(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)


class TimeRange(NamedTuple):
    """A time with its precision: from its first moment to the first behind it."""

    begins: datetime
    ends: datetime


def parse_time(text: str) -> TimeRange | None:
    """Return the time that an ISO 8601 text means (`2026-11`, `2026-11-01`, `2026-11-01T10:30`), in UTC where it names
    no offset; None if it is none."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, offset = found.groups()
    if offset and hour is None:
        return None
    try:
        begins = datetime(int(year), int(month), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0),
                          tzinfo=_parse_offset(offset))  # fmt: skip
        if day is None:
            ends = begins.replace(year=begins.year + begins.month // 12, month=begins.month % 12 + 1)
        else:
            unit = "days" if hour is None else "minutes" if second is None else "seconds"
            ends = begins + timedelta(**{unit: 1})
        return TimeRange(begins.astimezone(UTC), ends.astimezone(UTC))
    except (ValueError, OverflowError):
        return None


def _parse_offset(offset: str | None) -> Any:
    if offset in (None, "Z"):
        return UTC
    return datetime.strptime(str(offset).replace(":", ""), "%z").tzinfo


def _explain_refusal(text: str, unexpected: UnexpectedInput) -> QueryError:
    """Return what is wrong where the parser could not go on."""
    match unexpected:
        case UnexpectedToken():
            expected, found = set(unexpected.accepts or unexpected.expected), str(unexpected.token)
            start = len(text) if unexpected.token.type == "$END" else int(unexpected.token.start_pos or 0)
        case UnexpectedCharacters():
            expected, start = set(unexpected.allowed or ()), int(unexpected.pos_in_stream or 0)
            found = text[start : start + 1]
        case _:
            return QueryError("QUERY_UNEXPECTED", 0, len(text), found=text[:20])
    end = min(len(text), start + max(1, len(found)))
    if found == '"':
        return QueryError("QUERY_QUOTE_OPEN", start, len(text))
    if "BARE" in expected:
        return QueryError("QUERY_VALUE_EXPECTED", start, end, found=found[:20])
    opened = _find_open_parenthesis(text)
    if start == len(text):
        if "RPAR" in expected and opened is not None:
            return QueryError("QUERY_PARENTHESIS_OPEN", opened, opened + 1)
        return QueryError("QUERY_CONDITION_EXPECTED", start, start)
    if found == ")" and _find_open_parenthesis(text[:start]) is None:
        return QueryError("QUERY_PARENTHESIS_UNEXPECTED", start, end)
    if re.match(r"!=|[:=<>~]", text[start:]):
        return QueryError("QUERY_NAME_EXPECTED", start, end, found=found[:20])
    if found == ")" or re.fullmatch("or|and", found, re.IGNORECASE):
        return QueryError("QUERY_CONDITION_EXPECTED", start, end, found=found)
    return QueryError("QUERY_UNEXPECTED", start, end, found=found[:20])


def _find_open_parenthesis(text: str) -> int | None:
    """Return the position of the last parenthesis that is not closed."""
    opened: list[int] = []
    for found in re.finditer(rf"{_QUOTED}|[()]", text, re.DOTALL):
        if found[0] == "(":
            opened.append(found.start())
        elif found[0] == ")" and opened:
            opened.pop()
    return opened[-1] if opened else None
