"""What a query can be continued with at a position: names of fields, values of a field, `or` and `not`. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fermi.runs.fields import FIELDS, Field, FieldGroup, FieldKind, Statistic, quote_name, quote_text, resolve_field
from fermi.runs.query import MAX_LENGTH, OPERATORS, Operator

MAX_ITEMS = 30


class KnownNames(Protocol):
    """What there is among the reader's runs. Each list contains what contains `part`, whatever its case."""

    def list_names(self, group: FieldGroup, part: str) -> Iterable[str]:
        """Return names of parameters or of curves."""
        ...

    def list_values(self, field: Field, part: str) -> Iterable[str]:
        """Return values of a field."""
        ...


@dataclass(frozen=True, slots=True)
class CompletionItem:
    """A text for the place. `kind`: `field`, `parameter`, `metric`, `value`, `operator` or `keyword`; `detail`: of a
    field, its kind."""

    text: str
    kind: str
    detail: str = ""


class Completion(NamedTuple):
    """What the text between two positions may be replaced by."""

    start: int
    end: int
    items: list[CompletionItem]


_TOKEN = re.compile(
    r'(?P<head>-*(?:[^\s"():,=<>!~-]|(?<=[^\s"():,=<>!~-])-|"(?:[^"\\]|\\.)*")+\s*(?:!=|<=|>=|[:=<>~])\s*)'
    r'|(?P<quoted>"(?:[^"\\]|\\.)*(?:"|\Z))|(?P<comma>,\s*)|(?P<space>\s+)|(?P<bracket>[()])'
    r'|(?P<text>[^\s"(),]+)',
    re.DOTALL,
)
_HEAD_END = re.compile(r"\s*(!=|<=|>=|[:=<>~])\s*\Z")
_REST_OF_WORD = re.compile(r'[^\s"(),:=<>!~]*')
_REST_OF_VALUE = re.compile(r'[^\s"(),]*')
_KEYWORDS = (CompletionItem("or", "keyword"), CompletionItem("not", "keyword"))


@dataclass(slots=True)
class _Place:
    """Where a position is: behind which field and operator, if a value is expected, and the part of a word there."""

    field: Field | None = None
    operator: Operator | None = None
    start: int = 0
    part: str = ""
    begins_item: bool = True


def complete_query(text: str, position: int, known: KnownNames) -> Completion:
    """Return what the query can be continued with at a position; it may be wrong elsewhere."""
    text = text[:MAX_LENGTH]
    position = max(0, min(position, len(text)))
    place = _find_place(text, position)
    rest = _REST_OF_WORD if place.field is None else _REST_OF_VALUE
    found = rest.match(text, position)
    end = found.end() if found else position
    items = _list_names(place, text[end : end + 1], known) if place.field is None else _list_values(place, known)
    return Completion(place.start, end, _limit_items(items))


def _find_place(text: str, position: int) -> _Place:
    place = _Place(start=position)
    expects_value = False
    at = 0
    while at < position and (found := _TOKEN.match(text, at, position)):
        kind, token = found.lastgroup, found[0]
        if kind == "head":
            operator = _HEAD_END.search(token)
            assert operator is not None
            place.field = resolve_field(token[: operator.start()].lstrip("-").replace('"', ""))
            place.operator = Operator(operator[1])
            place.start, place.part, expects_value = position, "", True
        elif kind in ("quoted", "text") and expects_value:
            place.start, place.part, expects_value = at, token, False
        elif kind == "comma" and place.field is not None:
            place.start, place.part, expects_value = position, "", True
        elif kind == "text":
            dashes = len(token) - len(token.lstrip("-"))
            place = _Place(start=at + dashes, part=token[dashes:])
        elif not (kind == "space" and expects_value):
            place = _Place(start=position)
        at = found.end()
    return place


def _list_names(place: _Place, follows: str, known: KnownNames) -> Iterator[CompletionItem]:
    """Yield fields, then parameters and curves. `follows`: the character behind the word."""
    part = place.part
    colon = "" if follows in tuple(":=<>!~") and follows else ":"
    for group, prefix in ((FieldGroup.PARAMETER, "param."), (FieldGroup.METRIC, "metric.")):
        if part.startswith(prefix):
            for name in known.list_names(group, part.removeprefix(prefix)):
                yield from _make_name_items(group, name, colon)
            return
    lower = part.lower()
    for field in FIELDS.values():
        if field.name.lower().startswith(lower):
            ending = colon if field.kind in (FieldKind.TEXT, FieldKind.CHOICE) else ""
            yield CompletionItem(field.name + ending, "field", field.kind.value)
    for prefix, kind in (("param.", "parameter"), ("metric.", "metric")):
        if part and prefix.startswith(lower):
            yield CompletionItem(prefix, kind)
    yield from (item for item in _KEYWORDS if part and item.text.startswith(lower))
    if part:
        for group in (FieldGroup.PARAMETER, FieldGroup.METRIC):
            for name in known.list_names(group, part):
                yield from _make_name_items(group, name, colon)


def _make_name_items(group: FieldGroup, name: str, colon: str) -> Iterator[CompletionItem]:
    if group is FieldGroup.PARAMETER:
        clear = resolve_field(name)
        bare = clear is not None and clear.group is FieldGroup.PARAMETER and clear.name == name
        yield CompletionItem((quote_name(name) if bare else f"param.{quote_name(name)}") + colon, "parameter", "mixed")
    else:
        for statistic in (Statistic.LAST, Statistic.BEST):
            ending = "" if statistic is Statistic.LAST else f".{statistic}"
            yield CompletionItem(f"metric.{quote_name(name)}{ending}", "metric", "number")


def _list_values(place: _Place, known: KnownNames) -> Iterator[CompletionItem]:
    field = place.field
    assert field is not None
    if place.operator not in OPERATORS[field.kind]:
        return
    part = place.part.strip('"').replace("\\", "")
    if field.kind is FieldKind.CHOICE:
        found: Sequence[str] = [choice for choice in field.choices if choice.startswith(part.lower())]
    elif field.kind in (FieldKind.TEXT, FieldKind.MIXED):
        found = list(known.list_values(field, part))
    else:
        found = []
    for value in found:
        yield CompletionItem(_quote_value(value), "value")


def _quote_value(value: str) -> str:
    return value if value and re.fullmatch(r'[^\s"(),*]+', value) else quote_text(value)


def _limit_items(items: Iterable[CompletionItem]) -> list[CompletionItem]:
    """Return the first items, each once."""
    found: dict[str, CompletionItem] = {}
    for item in items:
        found.setdefault(item.text, item)
        if len(found) == MAX_ITEMS:
            break
    return list(found.values())
