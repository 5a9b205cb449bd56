"""Patterns of known lines with placeholders, as rules have them:

    Tried to allocate {tried:size}. GPU {gpu:int} has a total capacity of {total:size}

A pattern may match anywhere in a printed line. `{name}` takes the text up to the next words, at the end of the pattern
the rest of the line; `{}` skips any text. `{name:int}`, `num`, `size` (`2.00 GiB`) and `name` (letters, digits, `. _ -
/`) take that alone. `largest` is a size, too: of all places in the line where the pattern matches, the one with the
largest counts. `{{` is a brace.

No regular expressions: what projects write is matched while a task is being ended, by a process that serves all users.
A pattern takes time linear in the line, whatever it is and whatever was printed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,20})?) ?(?:([KMGTPE])i?)?(?:B|bytes|b)?\b")
KIND_PATTERNS: Mapping[str, re.Pattern[str]] = {
    "int": re.compile(r"\d{1,20}"),
    "num": re.compile(r"\d{1,20}(?:\.\d{1,20})?"),
    "size": _SIZE,
    "name": re.compile(r"[\w./-]{1,200}"),
    "largest": _SIZE,
}
MIN_FIRST_LENGTH = 4
"""Characters with which a pattern begins at least: these are searched for."""
MAX_PATTERN_LENGTH = 500
MAX_TRIES = 16
MAX_VALUE_LENGTH = 300
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
RULE_NAME = re.compile(r"[a-z][a-zA-Z0-9]{0,30}$")
METRIC_NAME = re.compile(r"[^\W\d][\w./@-]{0,59}$")


class RuleError(ValueError):
    """A wrong pattern or rule: a code with a text, and what fills it."""

    def __init__(self, code: str, **params: object) -> None:
        super().__init__(f"{code} {params}")
        self.code, self.params = code, params


@dataclass(frozen=True, slots=True)
class Placeholder:
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class LinePattern:
    """A parsed pattern. `pieces`: words and placeholders in turn, words first."""

    pieces: Sequence[str | Placeholder]

    @property
    def first(self) -> str:
        return str(self.pieces[0])

    @property
    def names(self) -> frozenset[str]:
        return frozenset(piece.name for piece in self.pieces if isinstance(piece, Placeholder) and piece.name)

    @property
    def weight(self) -> int:
        """The number of characters of a line that it fixes."""
        return sum(len(piece) for piece in self.pieces if isinstance(piece, str))

    def match(self, line: str) -> dict[str, str] | None:
        """Return the values of the placeholders, or None where the line does not match."""
        found = self._find_all(line)
        name = next((hole.name for hole in self.pieces if isinstance(hole, Placeholder) and hole.kind == "largest"), "")
        return max(found, key=lambda taken: parse_size(taken[name]), default=None) if name else next(found, None)

    def _find_all(self, line: str) -> Iterator[dict[str, str]]:
        at = -1
        for _ in range(MAX_TRIES):
            at = line.find(self.first, at + 1)
            if at < 0:
                return
            if (found := self._from(line, at + len(self.first))) is not None:
                yield found

    def _from(self, line: str, at: int) -> dict[str, str] | None:
        taken: dict[str, str] = {}
        for index in range(1, len(self.pieces), 2):
            hole = self.pieces[index]
            words = str(self.pieces[index + 1]) if index + 1 < len(self.pieces) else ""
            assert isinstance(hole, Placeholder)
            if hole.kind:
                found = KIND_PATTERNS[hole.kind].match(line, at)
                if found is None or not line.startswith(words, found.end()):
                    return None
                end = found.end()
            else:
                end = line.find(words, at) if words else len(line)
                if end < 0:
                    return None
            value = line[at:end].strip()[:MAX_VALUE_LENGTH]
            if hole.name and not value:
                return None
            if hole.name:
                taken.setdefault(hole.name, value)
            at = end + len(words)
        return taken


def parse_size(text: str) -> float:
    """Return the bytes that a text of the kind `size` stands for, 0 for any other text."""
    found = _SIZE.fullmatch(text)
    return float(found[1]) * 1024 ** " KMGTPE".index(found[2] or " ") if found else 0.0


def parse_pattern(text: str, names: re.Pattern[str] = RULE_NAME) -> LinePattern:
    """Return the parsed pattern, whose placeholders have `names`. Raises RuleError."""
    if len(text) > MAX_PATTERN_LENGTH or "\n" in text:
        raise RuleError("RULE_LINE_TOO_LONG", limit=MAX_PATTERN_LENGTH)
    pieces: list[str | Placeholder] = [""]
    at = 0
    for match in _PIECE.finditer(text):
        _append_text(pieces, text[at : match.start()])
        at = match.end()
        if match[0] in ("{{", "}}"):
            _append_text(pieces, match[0][0])
        elif match[1] is None:
            raise RuleError("RULE_BRACE", text=text)
        else:
            pieces.append(_parse_placeholder(match[1], text, pieces, names))
    _append_text(pieces, text[at:])
    if isinstance(pieces[0], Placeholder) or len(pieces[0]) < MIN_FIRST_LENGTH:
        raise RuleError("RULE_BEGINS_WITH_A_HOLE", text=text, least=MIN_FIRST_LENGTH)
    return LinePattern(tuple(pieces))


def _append_text(pieces: list[str | Placeholder], words: str) -> None:
    if words and isinstance(last := pieces[-1], str):
        pieces[-1] = last + words
    elif words:
        pieces.append(words)


def _parse_placeholder(
    placeholder: str, text: str, pieces: Sequence[str | Placeholder], names: re.Pattern[str]
) -> Placeholder:
    name, _, kind = placeholder.partition(":")
    if (name and not names.match(name)) or (kind and kind not in KIND_PATTERNS):
        raise RuleError("RULE_HOLE", hole=placeholder, allowed=", ".join(KIND_PATTERNS))
    if isinstance(pieces[-1], Placeholder):
        raise RuleError("RULE_HOLES_TOUCH", text=text)
    return Placeholder(name, kind)
