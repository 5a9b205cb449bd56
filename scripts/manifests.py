"""Writes the chart in deploy/helm/fermi as plain manifests, for clusters without Helm (`make manifests`).

    python scripts/manifests.py [--namespace fermi] [--name fermi] [--values FILE] [--output build/manifests.yaml]

The templates keep to what is understood here: if, else, range, define, variables, pipelines, and the functions below.
A test compares the result with Helm's own where there is a helm.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "deploy" / "helm" / "fermi"
ACTION = re.compile(r"\{\{(-)?\s*(/\*.*?\*/|.*?)\s*(-)?\}\}", re.DOTALL)
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[()|]|:=|=|[^\s()|]+')
ORDER = ("Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
         "PersistentVolumeClaim", "Service", "StatefulSet", "Job", "Deployment")  # fmt: skip


class Unknown(Exception):
    """The templates use something that is not understood here."""


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """("text" | "action", content), white space trimmed as `{{-` and `-}}` ask."""
    at, trim = 0, False
    for match in ACTION.finditer(text):
        before = text[at : match.start()]
        before = before.lstrip() if trim else before
        yield "text", before.rstrip() if match[1] else before
        if not match[2].startswith("/*"):
            yield "action", match[2]
        at, trim = match.end(), bool(match[3])
    yield "text", text[at:].lstrip() if trim else text[at:]


Node = tuple[str, str, list[Any], list[Any]]  # kind, expression, body, body of else


def parse(found: Iterator[tuple[str, str]], defined: dict[str, list[Node]]) -> tuple[list[Node], str]:
    """The nodes up to `end` or `else`, and which of them it was; what is defined goes into `defined`."""
    nodes: list[Node] = []
    for kind, content in found:
        word, _, rest = content.partition(" ")
        if kind == "text":
            nodes.append(("text", content, [], []))
        elif word in ("end", "else"):
            return nodes, content
        elif word in ("if", "range", "define"):
            body, stopped = parse(found, defined)
            other = parse(found, defined)[0] if stopped == "else" else []
            if word == "define":
                defined[json.loads(rest)] = body
            else:
                nodes.append((word, rest, body, other))
        else:
            nodes.append(("print", content, [], []))
    return nodes, ""


class Template:
    def __init__(self, defined: dict[str, list[Node]]) -> None:
        self._defined = defined
        self._functions: dict[str, Callable[..., Any]] = {
            "include": lambda name, dot: self.render(self._defined[name], dot, {"": dot}),
            "toYaml": lambda value: yaml.safe_dump(value, default_flow_style=False).rstrip(),
            "toJson": json.dumps,
            "nindent": lambda width, text: "\n" + _indent(width, text),
            "quote": json.dumps,
            "default": lambda other, value=None: value or other,
            "not": lambda value: not value,
            "and": lambda *values: next((value for value in values if not value), values[-1]),
            "printf": lambda form, *values: form % values,
            "dict": lambda *pairs: dict(zip(pairs[::2], pairs[1::2], strict=True)),
            "list": lambda *items: list(items),
            "index": lambda held, key: held[key],
            "join": lambda between, items: between.join(items),
            "prepend": lambda items, first: [first, *items],
        }

    def render(self, nodes: Sequence[Node], dot: Any, names: dict[str, Any]) -> str:
        """`names`: variables; the one without a name is the root, `$`."""
        out = []
        for kind, content, body, other in nodes:
            match kind:
                case "text":
                    out.append(content)
                case "if":
                    out.append(self.render(body if self._value(content, dot, names) else other, dot, names))
                case "range":
                    out += [self.render(body, item, names) for item in self._value(content, dot, names)]
                case _:
                    out.append(self._print(content, dot, names))
        return "".join(out)

    def _print(self, content: str, dot: Any, names: dict[str, Any]) -> str:
        if assigned := re.match(r"\$(\w+) :?= (.*)", content, re.DOTALL):
            names[assigned[1]] = self._value(assigned[2], dot, names)
            return ""
        value = self._value(content, dot, names)
        return json.dumps(value) if isinstance(value, bool) else str(value)

    def _value(self, expression: str, dot: Any, names: Mapping[str, Any]) -> Any:
        tokens = TOKEN.findall(expression)
        value = self._pipeline(tokens, dot, names)
        if tokens:
            raise Unknown(expression)
        return value

    def _pipeline(self, tokens: list[str], dot: Any, names: Mapping[str, Any]) -> Any:
        """Consumes `tokens` up to a closing parenthesis."""
        piped: list[Any] = []
        while True:
            terms: list[Any] = []
            while tokens and tokens[0] not in ("|", ")"):
                terms.append(self._term(tokens, dot, names))
            head, *arguments = [*terms, *piped]
            piped = [head(*arguments)] if callable(head) else [head]
            if not tokens or tokens[0] == ")":
                return piped[0]
            tokens.pop(0)

    def _term(self, tokens: list[str], dot: Any, names: Mapping[str, Any]) -> Any:
        token = tokens.pop(0)
        if token == "(":
            value = self._pipeline(tokens, dot, names)
            tokens.pop(0)
            more = tokens.pop(0) if tokens and re.match(r"\.\w", tokens[0]) else ""
            return _walk(value, more)
        if token.startswith('"'):
            return json.loads(token)
        if token.startswith("."):
            return _walk(dot, token)
        if token.startswith("$"):
            name, _, path = token[1:].partition(".")
            return _walk(names[name], path)
        if re.fullmatch(r"\d+|true|false", token):
            return json.loads(token)
        if token not in self._functions:
            raise Unknown(token)
        return self._functions[token]


def _walk(value: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        value = (value or {}).get(name)
    return value


def _indent(width: int, text: str) -> str:
    return "\n".join(" " * width + line for line in text.split("\n"))


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """As Helm lays values over the chart's own."""
    out = dict(base)
    for name, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(out.get(name), Mapping)
        out[name] = merged(out[name], value) if both else value
    return out


def manifests(values: Mapping[str, Any], *, name: str = "fermi", namespace: str = "fermi") -> list[dict[str, Any]]:
    """The chart's objects with `values` laid over its own, each in its namespace."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    root = {
        "Values": merged(yaml.safe_load((CHART / "values.yaml").read_text()), values),
        "Chart": {"AppVersion": str(chart["appVersion"])},
        "Release": {"Name": name, "Namespace": namespace},
    }
    defined: dict[str, list[Node]] = {}
    parsed = [parse(pieces(path.read_text()), defined)[0] for path in sorted((CHART / "templates").iterdir())]
    template = Template(defined)
    objects = []
    for nodes in parsed:
        objects += [one for one in yaml.safe_load_all(template.render(nodes, root, {"": root})) if one]
    for one in objects:
        if not one["kind"].startswith("Cluster"):
            one["metadata"].setdefault("namespace", namespace)
    return objects


def _without_hooks(one: dict[str, Any]) -> dict[str, Any]:
    """What only Helm reads is left out."""
    notes = one["metadata"].get("annotations", {})
    kept = {key: value for key, value in notes.items() if not key.startswith("helm.sh/")}
    about = {key: value for key, value in one["metadata"].items() if key != "annotations"}
    return {**one, "metadata": {**about, **({"annotations": kept} if kept else {})}}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--name", default="fermi")
    parser.add_argument("--namespace", default="fermi")
    parser.add_argument("--values", type=Path)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "manifests.yaml")
    given = parser.parse_args()
    values = yaml.safe_load(given.values.read_text()) if given.values else {}
    objects = [_without_hooks(one) for one in manifests(values, name=given.name, namespace=given.namespace)]
    objects.sort(key=lambda one: ORDER.index(one["kind"]) if one["kind"] in ORDER else len(ORDER))
    given.output.parent.mkdir(parents=True, exist_ok=True)
    dumper = yaml.SafeDumper
    dumper.ignore_aliases = lambda self, data: True  # type: ignore[method-assign]  # easier to read
    given.output.write_text(yaml.dump_all(objects, Dumper=dumper, sort_keys=False, width=120))
    print(f"{len(objects)} objects in {given.output}")


if __name__ == "__main__":
    main()
