"""Fields of a request as command-line flags. Which there are, and their values, is declared in the request
(`x-flag`)."""

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
DISTRIBUTED_CONFIG = "distributedConfig"


@dataclass(frozen=True)
class RequestField:
    """A field that has a flag. `parent`: the object of the request that has it; "" = the request itself. `rule`: its
    JSON Schema."""

    parent: str
    name: str
    rule: Mapping[str, Any]

    @property
    def flag(self) -> Mapping[str, Any]:
        return dict(self.rule["x-flag"])

    @property
    def code(self) -> str:
        """Code of its help text in `flags.toml`: FLAG_MASTER_PORT."""
        return f"FLAG_{self.flag['name'].removeprefix('--').upper().replace('-', '_')}"

    @property
    def is_table(self) -> bool:
        return self.rule.get("type") == "object"

    @property
    def is_list(self) -> bool:
        return self.rule.get("type") == "array"

    def option(self) -> Callable[[Function], Function]:
        """Return the click decorator that adds the flag."""
        flag, more = self.flag, {}
        if "range" in flag:
            more = {"metavar": flag["metavar"]}
        elif "parts" in flag:
            more = {"multiple": True, "metavar": flag["metavar"]}
        elif self.rule.get("type") == "boolean":
            more = {"is_flag": True, "default": None}
        elif self.is_table:
            more = {"multiple": True, "metavar": flag.get("metavar", "KEY=VALUE")}
        elif self.is_list:
            more = {"multiple": True}
        elif "anyOf" in self.rule:
            more = {"metavar": flag["metavar"]}
        elif choices := flag.get("choices") or self.rule.get("enum"):
            more = {"type": click.Choice(choices)}
        else:
            kinds = self.rule["type"]
            more = {"type": _OPTION_TYPES[kinds if isinstance(kinds, str) else kinds[0]]}
        return click.option(flag["name"], self.name, help=_(self.code), **more)

    def value(self, given: Any) -> Any:
        """Return the flag's value as the request has it; None where the flag was not given. Raise click.UsageError."""
        if given is None or given == ():
            return None
        if "range" in self.flag:
            return self._range(given)
        if "parts" in self.flag:
            return self._parts(given)
        if "anyOf" in self.rule:
            return int(given) if given.removeprefix("-").isdecimal() else given
        if self.is_list:
            return list(given)
        if not self.is_table:
            return given
        texts = self.rule["additionalProperties"].get("type") == "string"
        return (input_files.parse_settings if texts else input_files.parse_values)(given, self.flag["name"])

    def _parts(self, given: Sequence[str]) -> dict[str, Any]:
        """Return `nodes=3,gpuTypes=A100,gpuTypes=H100,labels.rack=r1` as an object: a list's key may be repeated, a
        table's keys follow a dot. Either may be JSON."""
        found: dict[str, Any] = {}
        for pair in (pair for text in given for pair in _PART_SEPARATOR.split(text)):
            [(name, value)] = input_files.parse_values([pair], self.flag["name"]).items()
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
        """Return `2:4` as two fields; `2` as the first of them."""
        words = given.split(":")
        if len(words) > 2 or not all(word.isascii() and word.isdigit() for word in words):
            raise click.UsageError(_("NOT_A_RANGE", flag=self.flag["name"], found=given))
        return dict(zip(self.flag["range"], map(int, words), strict=False))


_PART_SEPARATOR = re.compile(r",(?=[\w.]+=)")
_OPTION_TYPES: dict[str, type] = {"string": str, "integer": int, "number": float}


def list_fields(kind: type = TaskRequest) -> Iterator[RequestField]:
    """Yield the fields of a request that have flags."""
    properties = json_shape.build_schema(kind)["properties"]
    for within, known in (("", properties), (DISTRIBUTED_CONFIG, properties[DISTRIBUTED_CONFIG]["properties"])):
        for name, rule in known.items():
            if "x-flag" in rule:
                yield RequestField(within, name, rule)


def add_field_options(kind: type = TaskRequest) -> Callable[[Function], Function]:
    """Return a decorator that adds a flag for each field to a command, which receives them by the fields' names, for
    `apply_flags`."""

    def decorate(function: Function) -> Function:
        for field in reversed([*list_fields(kind)]):
            function = field.option()(function)
        return function

    return decorate


def apply_flags(request: dict[str, Any], flags: Mapping[str, Any], kind: type = TaskRequest) -> None:
    """Put the flags' values into the request: entries of a table or a list are added to its own, any other value
    replaces."""
    for field in list_fields(kind):
        if (value := field.value(flags.get(field.name))) is None:
            continue
        whole = request
        if field.parent:
            whole = request[field.parent] = {**read_section(request, field.parent, dict)}
        joins = field.is_table or "parts" in field.flag
        if field.is_list:
            value = list(dict.fromkeys([*read_section(whole, field.name, list), *value]))
        whole[field.name] = {**read_section(whole, field.name, dict), **value} if joins else value


Kind = TypeVar("Kind", dict[str, Any], list[str])


def read_section(table: Mapping[str, Any], key: str, kind: type[Kind]) -> Kind:
    """Return the table or list under `key`; empty without it. Raise click.UsageError for a value of another type."""
    found = table.get(key) or kind()
    if not isinstance(found, kind):
        raise click.UsageError(_("KEY_OF_WRONG_KIND", key=key, kind=_("A_LIST") if kind is list else _("A_TABLE")))
    return found
