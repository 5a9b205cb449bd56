"""Reads YAML with JSON's types (YAML 1.2): `on` and `2026-01-01` are text, `1e-4` is a number."""

import math
import re
from collections.abc import Callable
from typing import Any

import yaml

MAX_NODES = 20_000
"""Values of a document, with each repetition by an alias."""
MAX_DEPTH = 50
MAX_REASON_LENGTH = 200


class YamlDocumentError(ValueError):
    """A text that is no document of ours. `code` and `params`: of `fermi.messages`."""

    def __init__(self, code: str, **params: Any) -> None:
        super().__init__(code)
        self.code, self.params = code, params


class JsonTypesLoader(yaml.SafeLoader):
    """Loader with JSON's types, as the module says."""


_add_resolver: Callable[..., None] = JsonTypesLoader.add_implicit_resolver
JsonTypesLoader.yaml_implicit_resolvers = {
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


def load_yaml(text: str) -> Any:
    """Return what a trusted text describes. Raises yaml.YAMLError."""
    return yaml.load(text, JsonTypesLoader)


def read_object(text: str) -> dict[str, Any]:
    """Return the JSON object that a text from anywhere describes. Its size is bounded by what its aliases expand to,
    before anything is built. Raises YamlDocumentError."""
    try:
        found = _load_bounded(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise YamlDocumentError("YAML_UNREADABLE", line=line, why=(error.problem or "–")[:MAX_REASON_LENGTH]) from error
    except RecursionError as error:
        raise YamlDocumentError("YAML_TOO_LARGE", nodes=MAX_NODES, depth=MAX_DEPTH) from error
    except YamlDocumentError:
        raise
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError) as error:  # of `!!int x` and the like
        raise YamlDocumentError("YAML_UNREADABLE", line=1, why=str(error)[:MAX_REASON_LENGTH]) from error
    if not isinstance(found, dict):
        raise YamlDocumentError("YAML_NOT_OBJECT")
    return found


def _load_bounded(text: str) -> Any:
    loader = JsonTypesLoader(text)
    try:
        node = loader.get_single_node()
        _check_size(node)
        return _to_json(loader.construct_document(node)) if node else None
    finally:
        loader.dispose()


def _check_size(root: yaml.Node | None) -> None:
    left, stack = MAX_NODES, [(root, 1)] if root else []
    while stack:
        node, depth = stack.pop()
        left -= 1
        if left < 0 or depth > MAX_DEPTH:
            raise YamlDocumentError("YAML_TOO_LARGE", nodes=MAX_NODES, depth=MAX_DEPTH)
        if isinstance(node, yaml.MappingNode):
            stack += [(part, depth + 1) for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            stack += [(part, depth + 1) for part in node.value]


def _to_json(value: Any) -> Any:
    """Return the value with texts as keys. Raises YamlDocumentError for a value that JSON does not have."""
    if isinstance(value, dict):
        return {_to_key(key): _to_json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_to_json(inner) for inner in value]
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise YamlDocumentError("YAML_VALUE", found=str(value)[:MAX_REASON_LENGTH])


def _to_key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool | int | float):
        return str(key).lower() if isinstance(key, bool) else str(key)
    raise YamlDocumentError("YAML_VALUE", found=str(key)[:MAX_REASON_LENGTH])
