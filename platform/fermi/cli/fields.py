"""Fields of a request as flags. Which there are, and what each takes, is said where the request is (`x-flag`)."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from fermi.cli import input_files
from fermi.cli.texts import _
from fermi.jobs import json_shape
from fermi.planning.request import TaskRequest

Function = TypeVar("Function", bound=Callable[..., Any])
CONFIG = "distributedConfig"


@dataclass(frozen=True)
class Field:
    """`within`: the object of the request that has it; empty = the request itself. `rule`: its JSON Schema."""

    within: str
    name: str
    rule: Mapping[str, Any]

    @property
    def flag(self) -> Mapping[str, Any]:
        return dict(self.rule["x-flag"])

    @property
    def code(self) -> str:
        """Of its help, in `messages/<language>/cli.toml`: FLAG_MASTER_PORT."""
        return f"FLAG_{self.flag['name'].removeprefix('--').upper().replace('-', '_')}"

    @property
    def is_table(self) -> bool:
        return self.rule.get("type") == "object"

    def option(self) -> Callable[[Function], Function]:
        flag, more = self.flag, {}
        if "range" in flag:
            more = {"metavar": flag["metavar"]}
        elif "parts" in flag:
            more = {"multiple": True, "metavar": flag["metavar"]}
        elif self.rule.get("type") == "boolean":
            more = {"is_flag": True, "default": None}
        elif self.is_table:
            more = {"multiple": True, "metavar": flag.get("metavar", "KEY=VALUE")}
        elif "anyOf" in self.rule:
            more = {"metavar": flag["metavar"]}
        elif choices := flag.get("choices") or self.rule.get("enum"):
            more = {"type": click.Choice(choices)}
        else:
            kinds = self.rule["type"]
            more = {"type": _KINDS[kinds if isinstance(kinds, str) else kinds[0]]}
        return click.option(flag["name"], self.name, help=_(self.code), **more)

    def value(self, given: Any) -> Any:
        """What was given on the command line, as the request has it; None = nothing."""
        if given is None or given == ():
            return None
        if "range" in self.flag:
            return self._range(given)
        if "parts" in self.flag:
            return self._parts(given)
        if "anyOf" in self.rule:
            return int(given) if given.removeprefix("-").isdecimal() else given
        if not self.is_table:
            return given
        texts = self.rule["additionalProperties"].get("type") == "string"
        return (input_files.settings if texts else input_files.values)(given, self.flag["name"])

    def _parts(self, given: Sequence[str]) -> dict[str, Any]:
        """`nodes=3,gpuTypes=A100,gpuTypes=H100,labels.rack=r1` as the object that the flag is for: what is a list may
        come more than once, what is a table has its keys behind a dot. Either may be JSON."""
        found: dict[str, Any] = {}
        for pair in (pair for text in given for pair in _PARTS.split(text)):
            [(name, value)] = input_files.values([pair], self.flag["name"]).items()
            name, _dot, key = name.partition(".")
            kind = self.rule["properties"].get(name, {}).get("type")
            if key:
                found[name] = {**found.get(name, {}), key: pair.partition("=")[2]}
            elif kind == "array" and not isinstance(value, list):
                found[name] = [*found.get(name, []), pair.partition("=")[2]]
            else:
                found[name] = value
        return found

    def _range(self, given: str) -> dict[str, int]:
        """`2:4` as the two fields that the flag is for; `2` as the first of them."""
        words = given.split(":")
        if len(words) > 2 or not all(word.isascii() and word.isdigit() for word in words):
            raise click.UsageError(_("NOT_A_RANGE", flag=self.flag["name"], found=given))
        return dict(zip(self.flag["range"], map(int, words), strict=False))


_PARTS = re.compile(r",(?=[\w.]+=)")
_KINDS: dict[str, type] = {"string": str, "integer": int, "number": float}


def fields(kind: type = TaskRequest) -> Iterator[Field]:
    properties = json_shape.build_schema(kind)["properties"]
    for within, known in (("", properties), (CONFIG, properties[CONFIG]["properties"])):
        for name, rule in known.items():
            if "x-flag" in rule:
                yield Field(within, name, rule)


def options(kind: type = TaskRequest) -> Callable[[Function], Function]:
    """Decorates a command with a flag for each field; it gets them by the fields' names, for `apply`."""

    def decorate(function: Function) -> Function:
        for field in reversed([*fields(kind)]):
            function = field.option()(function)
        return function

    return decorate


def apply(request: dict[str, Any], given: Mapping[str, Any], kind: type = TaskRequest) -> None:
    """Puts what was given into the request: a table's entries join those that it has, anything else replaces."""
    for field in fields(kind):
        if (value := field.value(given.get(field.name))) is None:
            continue
        whole = request
        if field.within:
            whole = request[field.within] = {**part(request, field.within, dict)}
        joins = field.is_table or "parts" in field.flag
        whole[field.name] = {**part(whole, field.name, dict), **value} if joins else value


Kind = TypeVar("Kind", dict[str, Any], list[str])


def part(whole: Mapping[str, Any], key: str, kind: type[Kind]) -> Kind:
    """What a file has under `key`; empty without it."""
    found = whole.get(key) or kind()
    if not isinstance(found, kind):
        raise click.UsageError(_("KEY_OF_WRONG_KIND", key=key, kind=_("A_LIST") if kind is list else _("A_TABLE")))
    return found
