"""Patterns of `.gitignore` files, as git defines them (gitignore(5)). Standard library only, Python 3.9 or later."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": " \\t", "cntrl": "\\x00-\\x1f\\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": "\\s", "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}  # fmt: skip

_ANY_FOLDERS, _ANY_LETTERS = "(?:[^/]+/)*", "[^/]*"
_groups = itertools.count()


class IgnoreRules:
    """The rules of one folder's file."""

    def __init__(self, lines: Iterable[str]) -> None:
        found = [rule for rule in map(_parse_rule, lines) if rule]
        self._rules = [(re.compile(pattern, re.DOTALL), leaves_out) for pattern, leaves_out in reversed(found)]
        self._any = re.compile("|".join(pattern for pattern, _ in found), re.DOTALL) if found else None

    def says(self, path: str) -> bool | None:
        """Return whether a path within the folder (a folder's ends with a slash) is ignored, or None if no line
        matches. The last matching line counts."""
        path = f"{path}/" if path.endswith("/") else path  # two slashes, which no wildcard reaches into
        if self._any is None or not self._any.fullmatch(path):
            return None
        return next(leaves_out for pattern, leaves_out in self._rules if pattern.fullmatch(path))


def _parse_rule(line: str) -> tuple[str, bool] | None:
    """Return a pattern of whole paths, and whether matches are ignored; None for a line without meaning."""
    line = _strip_spaces(line.rstrip("\r\n"))
    if not line or line.startswith("#"):
        return None
    leaves_out = not line.startswith("!")
    line = line[not leaves_out :]
    only_folders = line.endswith("/")
    line = line[:-1] if only_folders else line
    anchored = "/" in line
    pattern = _build_pattern(line.removeprefix("/"))
    if not pattern:
        return None
    return f"{'' if anchored else _ANY_FOLDERS}{pattern}{'//' if only_folders else '(?://)?'}", leaves_out


def _strip_spaces(line: str) -> str:
    """Remove spaces at the end that no backslash precedes."""
    bare = line.rstrip(" ")
    behind = len(bare) - len(bare.rstrip("\\"))
    return f"{bare} " if behind % 2 and bare != line else bare


def _build_pattern(line: str) -> str:
    """Return the regular expression of a line, or an empty string if nothing can match it."""
    found, at = [], 0
    while at < len(line):
        letter = line[at]
        if letter == "*":
            end = at
            while line[end : end + 1] == "*":
                end += 1
            alone = end - at > 1 and line[at - 1 : at] in ("", "/") and line[end : end + 1] in ("", "/")
            if alone and end < len(line):
                found.append(_ANY_FOLDERS)
                end += 1
            else:
                found.append("[^/].*" if alone else _ANY_LETTERS)
            at = end
        elif letter == "[":
            one, at = _parse_bracket(line, at + 1)
            if not one:
                return ""
            found.append(one)
        elif letter == "\\":
            if at + 1 == len(line):
                return ""
            found.append(re.escape(line[at + 1]))
            at += 2
        else:
            found.append("[^/]" if letter == "?" else re.escape(letter))
            at += 1
    between = [_join_parts(part.split(_ANY_LETTERS), _ANY_LETTERS) for part in "".join(found).split(_ANY_FOLDERS)]
    return _join_parts(between, _ANY_FOLDERS)


def _join_parts(parts: list[str], wildcard: str) -> str:
    """Join parts with a wildcard so that a path is matched in linear time: each part but the last is matched where it
    first fits, since the wildcard after it reaches at least as far from there. (Atomic groups need Python 3.11.)"""
    first, *rest = parts
    for part in rest[:-1]:
        group = f"g{next(_groups)}"
        first += f"(?=(?P<{group}>{wildcard}?{part}))(?P={group})"
    return f"{first}{wildcard}{rest[-1]}" if rest else first


def _parse_bracket(line: str, at: int) -> tuple[str, int]:
    """Return the regular expression of `[…]` from after its first character, and where it ends; empty if it does not
    end."""
    inverted = line[at : at + 1] in ("!", "^")
    at += inverted
    inside: list[str] = []
    first, before = True, ""
    while at < len(line):
        letter = line[at]
        if letter == "]" and not first:
            return f"(?!/)[{'^' if inverted else ''}{''.join(inside)}]", at + 1
        first = False
        if line.startswith("[:", at) and (end := line.find("]", at + 2)) > 0 and line[end - 1] == ":":
            name = line[at + 2 : end - 1]
            if name not in _CLASSES:
                return "", at
            inside.append(_CLASSES[name])
            at, before = end + 1, ""
            continue
        if letter == "-" and before and line[at + 1 : at + 2] not in ("", "]"):
            at += 2 if line[at + 1] == "\\" else 1
            if at == len(line):
                return "", at
            if before <= line[at]:
                inside.append(f"{re.escape(before)}-{re.escape(line[at])}")
            at, before = at + 1, ""
            continue
        if letter == "\\":
            at += 1
            if at == len(line):
                return "", at
        before = line[at]
        inside.append(re.escape(before))
        at += 1
    return "", at
