"""Input of users: requests in YAML or JSON files, and KEY=VALUE arguments."""

import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

import click
import yaml

from fermi.cli.texts import _
from fermi.comments import Comment, find_comment


class _YamlLoader(yaml.SafeLoader):
    """YAML loader with JSON's types (YAML 1.2): `on` and `2026-01-01` are text, `1e-4` is a number."""


_add_resolver: Callable[..., None] = _YamlLoader.add_implicit_resolver
_YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] in {"null", "merge"}]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_add_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))
_add_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9]\d*)$"), list("-+0123456789"))
_add_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?$"),
    list("-+.0123456789"),
)


def _read_mapping(file: TextIO, name: str) -> dict[str, Any]:
    try:
        text = file.read()
        if comment := _find_json_comment(text):
            raise click.UsageError(_("FILE_HAS_COMMENT", file=name, line=comment.line, comment=comment.text))
        found = yaml.load(text, _YamlLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise click.UsageError(_("FILE_NOT_YAML", file=name, why=error)) from error
    if not isinstance(found, dict):
        raise click.UsageError(_("FILE_HOLDS_NO_REQUEST", file=name))
    return found


def _find_json_comment(text: str) -> Comment | None:
    """Return the first comment in a file that is written as JSON. YAML has comments, too, but none that begin with
    `//`."""
    try:
        if text.lstrip().startswith("{"):
            json.loads(text)
    except json.JSONDecodeError as error:
        found = find_comment(text, error.pos)
        return None if found and found.text.startswith("#") else found
    except (ValueError, RecursionError):
        return None
    return None


def read_request(path: str) -> dict[str, Any]:
    """Return the request in a file; "-" is standard input. Raise click.UsageError."""
    if path == "-":
        return _read_mapping(sys.stdin, path)
    try:
        with Path(path).open(encoding="utf-8") as file:
            return _read_mapping(file, path)
    except OSError as error:
        raise click.UsageError(_("FILE_NOT_READABLE", file=path, why=error.strerror)) from error


def parse_settings(pairs: Iterable[str], flag: str) -> dict[str, str]:
    """Return repeated KEY=VALUE arguments as a table. Raise click.BadParameter."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(_("NOT_KEY_VALUE", value=pair), param_hint=flag)
        found[key] = value
    return found


def parse_values(pairs: Iterable[str], flag: str) -> dict[str, Any]:
    """Return repeated KEY=VALUE arguments; a value is JSON where it can be read as such (8, 1e-4, true, null), else
    text."""
    return {key: _parse_value(text) for key, text in parse_settings(pairs, flag).items()}


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text
