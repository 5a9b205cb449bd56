"""Input of users: requests in YAML or JSON files, and KEY=VALUE arguments."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

import click
import yaml

from fermi.cli.texts import _
from fermi.comments import Comment, find_comment
from fermi.yaml_documents import load_yaml


def _read_mapping(file: TextIO, name: str) -> dict[str, Any]:
    try:
        text = file.read()
        if comment := _find_json_comment(text):
            raise click.UsageError(_("FILE_HAS_COMMENT", file=name, line=comment.line, comment=comment.text))
        found = load_yaml(text)
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
