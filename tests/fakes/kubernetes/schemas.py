"""Strict validation: built-in kinds with kubernetes-validate's bundled schemas, custom ones with their published
definitions from the folder that FERMI_CRDS names. An unknown field is an error, as with `fieldValidation=Strict`.

Rules in CEL (`x-kubernetes-validations`) are not evaluated.
"""

import functools
import importlib.resources
import os
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
import yaml

from tests.fakes.kubernetes.resources import Resource

VERSION = "1.37.0"
META = {"$ref": "https://kubernetes.io/api/_definitions.json#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
BASE = "https://kubernetes.io/api"


class NoSchemaError(Exception):
    """A custom resource cannot be checked: FERMI_CRDS is not set or has no definition of it."""


def problems(resource: Resource, obj: dict[str, Any], limit: int = 5) -> list[str]:
    """What is wrong with the object's form, with the path of each problem."""
    validator = _validator(resource, obj["apiVersion"].rpartition("/")[2])
    if validator.is_valid(obj):
        return []
    return [_said(error) for error, _ in zip(validator.iter_errors(obj), range(limit), strict=False)]


def can_check(resource: Resource) -> bool:
    try:
        _validator(resource, resource.versions[0])
    except NoSchemaError:
        return False
    return True


def _said(error: jsonschema_rs.ValidationError) -> str:
    path = ".".join(str(part) for part in error.instance_path)
    return f"{path}: {error.message}"[:400]


@functools.cache
def _validator(resource: Resource, version: str) -> jsonschema_rs.Draft202012Validator:
    schema = _custom(resource, version) if "x-k8s.io" in resource.group else _builtin(resource, version)
    registry = jsonschema_rs.Registry([(f"{BASE}/_definitions.json", _definitions())])
    return jsonschema_rs.Draft202012Validator(schema, registry=registry)


def _bundled(name: str) -> dict[str, Any]:
    root = importlib.resources.files("kubernetes_validate") / "kubernetes-json-schema" / f"v{VERSION}-local-strict"
    return orjson.loads((root / name).read_bytes())


@functools.cache
def _definitions() -> dict[str, Any]:
    return _bundled("_definitions.json")


def _builtin(resource: Resource, version: str) -> dict[str, Any]:
    group = resource.group.partition(".")[0]
    return _bundled(f"{resource.kind.lower()}-{group}{'-' if group else ''}{version}.json")


def _custom(resource: Resource, version: str) -> dict[str, Any]:
    folder = os.environ.get("FERMI_CRDS")
    path = Path(folder or "/nonexistent") / f"{resource.group}_{resource.plural}.yaml"
    if not path.is_file():
        raise NoSchemaError(f"{resource.full_name}: no {path.name} in FERMI_CRDS ({folder})")
    definition = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    found = next(one for one in definition["spec"]["versions"] if one["name"] == version)
    schema = _strict(found["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = META
    return schema | {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def _strict(schema: Any) -> Any:
    """A structural schema as JSON Schema that refuses unknown fields."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {
        name: {key: _strict(value) for key, value in part.items()} if name == "properties" else _strict(part)
        for name, part in schema.items()
        if name not in ("description", "default", "enum", "required") and not name.startswith("x-kubernetes")
    }
    strict |= {name: schema[name] for name in ("enum", "required") if name in schema}
    if schema.get("x-kubernetes-int-or-string"):
        strict["type"] = ["integer", "string"]
    if schema.get("nullable"):
        strict["type"] = [strict["type"], "null"]
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-embedded-resource")
    if "properties" in schema and not open_ended:
        strict.setdefault("additionalProperties", False)
    return strict
