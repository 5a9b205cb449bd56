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
KINDS: Mapping[str, re.Pattern[str]] = {
    "int": re.compile(r"\d{1,20}"),
    "num": re.compile(r"\d{1,20}(?:\.\d{1,20})?"),
    "size": _SIZE,
    "name": re.compile(r"[\w./-]{1,200}"),
    "largest": _SIZE,
}
SHORTEST = 4
"""Characters with which a pattern begins at least: these are searched for."""
LONGEST = 500
MOST_TRIES = 16
MOST_TAKEN = 300
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = re.compile(r"[a-z][a-zA-Z0-9]{0,30}$")


class Wrong(ValueError):
    """A wrong pattern or rule: a code with a text, and what fills it."""

    def __init__(self, code: str, **params: object) -> None:
        super().__init__(f"{code} {params}")
        self.code, self.params = code, params


@dataclass(frozen=True, slots=True)
class Hole:
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern. `pieces`: words and placeholders in turn, words first."""

    pieces: Sequence[str | Hole]

    @property
    def first(self) -> str:
        return str(self.pieces[0])

    @property
    def names(self) -> frozenset[str]:
        return frozenset(piece.name for piece in self.pieces if isinstance(piece, Hole) and piece.name)

    @property
    def weight(self) -> int:
        """The number of characters of a line that it fixes."""
        return sum(len(piece) for piece in self.pieces if isinstance(piece, str))

    def match(self, line: str) -> dict[str, str] | None:
        """Return the values of the placeholders, or None where the line does not match."""
        found = self._find_all(line)
        name = next((hole.name for hole in self.pieces if isinstance(hole, Hole) and hole.kind == "largest"), "")
        return max(found, key=lambda taken: parse_size(taken[name]), default=None) if name else next(found, None)

    def _find_all(self, line: str) -> Iterator[dict[str, str]]:
        at = -1
        for _ in range(MOST_TRIES):
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
            assert isinstance(hole, Hole)
            if hole.kind:
                found = KINDS[hole.kind].match(line, at)
                if found is None or not line.startswith(words, found.end()):
                    return None
                end = found.end()
            else:
                end = line.find(words, at) if words else len(line)
                if end < 0:
                    return None
            value = line[at:end].strip()[:MOST_TAKEN]
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


def pattern(text: str) -> Pattern:
    """Return the parsed pattern. Raises RuleError."""
    if len(text) > LONGEST or "\n" in text:
        raise Wrong("RULE_LINE_TOO_LONG", limit=LONGEST)
    pieces: list[str | Hole] = [""]
    at = 0
    for match in _PIECE.finditer(text):
        _more(pieces, text[at : match.start()])
        at = match.end()
        if match[0] in ("{{", "}}"):
            _more(pieces, match[0][0])
        elif match[1] is None:
            raise Wrong("RULE_BRACE", text=text)
        else:
            pieces.append(_hole(match[1], text, pieces))
    _more(pieces, text[at:])
    if isinstance(pieces[0], Hole) or len(pieces[0]) < SHORTEST:
        raise Wrong("RULE_BEGINS_WITH_A_HOLE", text=text, least=SHORTEST)
    return Pattern(tuple(pieces))


def _more(pieces: list[str | Hole], words: str) -> None:
    if words and isinstance(last := pieces[-1], str):
        pieces[-1] = last + words
    elif words:
        pieces.append(words)


def _hole(said: str, text: str, before: Sequence[str | Hole]) -> Hole:
    name, _, kind = said.partition(":")
    if (name and not _NAME.match(name)) or (kind and kind not in KINDS):
        raise Wrong("RULE_HOLE", hole=said, allowed=", ".join(KINDS))
    if isinstance(before[-1], Hole):
        raise Wrong("RULE_HOLES_TOUCH", text=text)
    return Hole(name, kind)
