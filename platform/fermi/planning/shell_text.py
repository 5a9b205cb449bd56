"""Reads the text of a shell, as people copy it from a README or their history, into simple commands. Runs nothing, and
needs time in proportion to the text's length. Pure.

    $ export A=1                                   export A=1
    $ cd examples && torchrun \\            is      cd examples          (&&)
    >   train.py --out "$HOME/a b" > log 2>&1 &    torchrun train.py --out …   (> log, 2>&1, &)

Read as POSIX describes it (Shell Command Language, 2.2 quoting, 2.3 tokens, 2.6 word expansions) and as Bash adds to it
(`$'…'`, arrays, `&>`). What only a shell can know stays a piece of its own: variables, and the output of commands.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

MAX_TEXT_BYTES = 16 << 10
"""Bytes of a text that is read."""


class ShellTextError(Exception):
    """The text is no shell text. `code`: with its texts in `fermi.messages`."""

    def __init__(self, code: str, **params: object) -> None:
        super().__init__(code)
        self.code, self.params = code, params


class Piece(NamedTuple):
    """A part of a word. `text`: the text itself, a variable's name, or the source of what only a shell can compute.
    `default`: what `${name:-default}` names."""

    kind: Literal["text", "variable", "list", "computed"]
    text: str
    quoted: bool = False
    default: str | None = None

    @property
    def source(self) -> str:
        """The piece as it is written."""
        if self.kind == "variable":
            return f"${self.text}" if self.default is None else f"${{{self.text}:-{self.default}}}"
        return f"${{{self.text}[@]}}" if self.kind == "list" else self.text


@dataclass(slots=True)
class Word:
    pieces: list[Piece] = field(default_factory=list)
    values: list["Word"] | None = None  # of `NAME=( … )`

    @property
    def source(self) -> str:
        return "".join(piece.source for piece in self.pieces)

    @property
    def unquoted_text(self) -> str:
        """The word if it is one piece without quotes; else empty."""
        return self.pieces[0].text if len(self.pieces) == 1 and self.pieces[0][0::2] == ("text", False) else ""


@dataclass(slots=True)
class Command:
    """A simple command. `redirects`: as written; `end`: what follows (`;`, `&&`, `|`, `&`, or empty). `strange`: what
    of the shell's grammar stands in it that is not read."""

    words: list[Word] = field(default_factory=list)
    redirects: list[str] = field(default_factory=list)
    end: str = ""
    strange: str = ""


_PROMPT = re.compile(
    r"\s*(?:\([\w .:/+-]{1,64}\)\s*)?(?:\[?[\w.-]{1,64}@[\w.-]{1,64}[: ]?[^\s$#%]{0,200}\]?\s?[$#%]\s+|\$\s+|[❯➜»]\s+)"
)
_CONTINUED_PROMPT = re.compile(r"\s*>\s+(?=\S)")
_OPTION_LINE = re.compile(r"\s*--?[A-Za-z]")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_NOTEBOOK = re.compile(r"\s*!(?=[\w./~])")
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*|[@*#?0-9$!])|\{([A-Za-z_]\w*|[@*])(?:\[([@*])\])?(?::?-([^${}`]*))?\})")
_OPERATOR = re.compile(r"&>>|&>|&&|\|\||\|&|;;|<<<|<<-?|>>|>\||<>|[<>]&|[;|&()<>]")
_DESCRIPTOR = re.compile(r"\d(?=[<>])")
_PLAIN_TEXT = re.compile(r"[^\s\\'\"$`;|&()<>]+")
_QUOTED_TEXT = re.compile(r"\\|[^\\\"$`]+")
_ESCAPED_TEXT = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "0": "\0"}


def parse_commands(text: str) -> list[Command]:
    """Return the simple commands of a text, in their order. Raise ShellTextError for a text that is too long, has
    control characters, or a quote that is not closed."""
    if len(text.encode("utf-8", "replace")) > MAX_TEXT_BYTES:
        raise ShellTextError("COMMAND_TEXT_TOO_LONG", limit=MAX_TEXT_BYTES >> 10)
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u00a0", " ").lstrip("\ufeff")
    if found := re.search(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]", text):
        raise ShellTextError("COMMAND_TEXT_CONTROL", found=f"U+{ord(found[0]):04X}")
    return [one for one in _Parser(_strip_prompts(text)).parse() if one.words or one.strange]


def _strip_prompts(text: str) -> str:
    """Return the text without prompts and Markdown's fences, and each command on one line. Where one line has a prompt,
    lines without one are output."""
    lines = [line for line in text.split("\n") if not _FENCE.match(line)]
    prompted = any(_PROMPT.match(line) for line in lines)
    commands: list[list[str]] = []
    continues = False
    for line in lines:
        prompt = _PROMPT.match(line)
        carried = bool(commands) and _OPTION_LINE.match(line) is not None  # no command begins with an option
        if continues:
            again = _CONTINUED_PROMPT.match(line) if prompted else None
            line = line[again.end() :] if again else line
        elif prompt:
            line = line[prompt.end() :]
        elif prompted and line.strip():
            continue
        elif notebook := _NOTEBOOK.match(line):
            line = line[notebook.end() :]
        if not (continues or carried):
            commands.append([])
        elif not continues:
            commands[-1].append(" ")
        cut = line.rstrip(" \t")
        continues = cut.endswith("\\") and not cut.endswith("\\\\")
        commands[-1].append(cut[:-1] if continues else line)
    return "\n".join("".join(parts) for parts in commands)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def parse(self) -> Iterator[Command]:
        command = Command()
        while (ended := self._skip_blanks()) is None or not ended:
            if ended is None:  # the end of a line
                yield command
                command = Command()
                continue
            operator = _OPERATOR.match(self.text, self.at)
            descriptor = _DESCRIPTOR.match(self.text, self.at)
            if descriptor or (operator and operator[0][0] in "<>") or (operator and operator[0] in ("&>", "&>>")):
                self._read_redirect(command)
            elif operator:
                self.at = operator.end()
                if operator[0] in ("(", ")", ";;"):
                    command.strange = command.strange or operator[0]
                else:
                    command.end = operator[0]
                    yield command
                    command = Command()
            else:
                command.words.append(self._read_word())
        yield command

    def _skip_blanks(self) -> bool | None:
        """Move to the next token. Return None where a line ends before it, True at the end of the text."""
        text = self.text
        while self.at < len(text):
            if text[self.at] == "\n":
                self.at += 1
                return None
            if text[self.at].isspace():
                self.at += 1
            elif text[self.at] == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            else:
                return False
        return True

    def _read_redirect(self, command: Command) -> None:
        begin = self.at
        if _DESCRIPTOR.match(self.text, self.at):
            self.at += 1
        operator = _OPERATOR.match(self.text, self.at)
        assert operator
        self.at = operator.end()
        if operator[0] in ("<<", "<<-", "<<<"):
            command.strange = command.strange or operator[0]
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        if self.at < len(self.text) and self.text[self.at] == "(":
            command.strange = command.strange or f"{operator[0]}("
            return
        if self.at < len(self.text) and self.text[self.at] == "-":
            self.at += 1
        elif self.at < len(self.text) and self.text[self.at] not in "\n;|&<>)":
            self._read_word()
        command.redirects.append(self.text[begin : self.at].strip())

    def _read_word(self, *, in_list: bool = False) -> Word:
        word = Word()
        text = self.text
        while self.at < len(text):
            char = text[self.at]
            if char.isspace() or char in ";|&)<>":
                break
            if char == "(":
                if not in_list and re.fullmatch(r"[A-Za-z_]\w*\+?=", word.unquoted_text):
                    word.values = self._read_values()
                    break
                word.pieces.append(Piece("computed", self._read_nested("(", ")")))
            elif char == "\\":
                word.pieces.append(Piece("text", text[self.at + 1 : self.at + 2], True))
                self.at += 2
            elif char == "'":
                word.pieces.append(Piece("text", self._read_until_quote("'"), True))
            elif char == '"':
                self._read_double_quoted(word)
            elif char in "$`":
                word.pieces.append(self._read_expansion(quoted=False))
            else:
                found = _PLAIN_TEXT.match(text, self.at)
                assert found
                word.pieces.append(Piece("text", found[0]))
                self.at = found.end()
        return word

    def _read_values(self) -> list[Word]:
        """Return the words of an array's parentheses."""
        self.at += 1
        found: list[Word] = []
        while (ended := self._skip_blanks()) is not True:
            if ended is None:
                continue
            if self.text[self.at] == ")":
                self.at += 1
                return found
            if self.text[self.at] in ";|&(<>":
                break
            found.append(self._read_word(in_list=True))
        raise ShellTextError("COMMAND_TEXT_UNCLOSED", found="(")

    def _read_until_quote(self, quote: str) -> str:
        end = self.text.find(quote, self.at + 1)
        if end < 0:
            raise ShellTextError("COMMAND_TEXT_UNCLOSED", found=quote)
        inner = self.text[self.at + 1 : end]
        self.at = end + 1
        return inner

    def _read_double_quoted(self, word: Word) -> None:
        text = self.text
        self.at += 1
        word.pieces.append(Piece("text", "", True))
        while self.at < len(text):
            char = text[self.at]
            if char == '"':
                self.at += 1
                return
            if char == "\\" and text[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\"):
                word.pieces.append(Piece("text", text[self.at + 1], True))
                self.at += 2
            elif char in "$`":
                word.pieces.append(self._read_expansion(quoted=True))
            else:
                found = _QUOTED_TEXT.match(text, self.at)
                assert found
                word.pieces.append(Piece("text", found[0], True))
                self.at = found.end()
        raise ShellTextError("COMMAND_TEXT_UNCLOSED", found='"')

    def _read_expansion(self, *, quoted: bool) -> Piece:
        text = self.text
        if text[self.at] == "`":
            return Piece("computed", f"`{self._read_until_quote('`')}`", quoted)
        if found := _VARIABLE.match(text, self.at):
            self.at = found.end()
            return Piece("list" if found[3] else "variable", found[1] or found[2], quoted, found[4])
        after = text[self.at + 1 : self.at + 2]
        if after == "'" and not quoted:
            return Piece("text", self._read_escaped(), True)
        if after == '"' and not quoted:
            self.at += 1
            return Piece("text", "")
        if after in ("(", "{"):
            self.at += 1
            return Piece("computed", f"${self._read_nested(after, ')' if after == '(' else '}')}", quoted)
        self.at += 1
        return Piece("text", "$", quoted)

    def _read_escaped(self) -> str:
        """Return the text of `$'…'`."""
        found = _ESCAPED_TEXT.match(self.text, self.at)
        if not found:
            raise ShellTextError("COMMAND_TEXT_UNCLOSED", found="'")
        self.at = found.end()
        return re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], one[0]), found[1], flags=re.DOTALL)

    def _read_nested(self, opening: str, closing: str) -> str:
        """Return what stands between two brackets, with them."""
        depth, begin = 0, self.at
        for index in range(begin, len(self.text)):
            if self.text[index] == opening:
                depth += 1
            elif self.text[index] == closing:
                depth -= 1
                if depth == 0:
                    self.at = index + 1
                    return self.text[begin : self.at]
        raise ShellTextError("COMMAND_TEXT_UNCLOSED", found=opening)
