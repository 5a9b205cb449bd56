"""JSON patch, merge patch, and the strategic merge of built-in kinds (lists merged by their key)."""

from typing import Any

from tests.fakes.kubernetes.errors import Refused, bad_request, unsupported_media_type

JSON, MERGE, STRATEGIC = (f"application/{kind}patch+json" for kind in ("json-", "merge-", "strategic-merge-"))
_KEYS = {
    "conditions": "type", "containers": "name", "initContainers": "name", "env": "name", "ownerReferences": "uid",
    "taints": "key", "volumes": "name", "volumeMounts": "mountPath", "imagePullSecrets": "name", "ports": "port",
}  # fmt: skip


def apply(obj: dict[str, Any], patch: Any, content_type: str, *, builtin: bool) -> dict[str, Any]:
    """A new object. Raises the API server's refusals."""
    accepted = [JSON, MERGE] + ([STRATEGIC] if builtin else [])
    if content_type not in accepted:
        raise unsupported_media_type(", ".join(accepted))
    if content_type == JSON:
        for step in patch:
            obj = _json_step(obj, step)
        return obj
    return _merge(obj, patch, strategic=content_type == STRATEGIC)


def _merge(old: Any, patch: Any, *, strategic: bool, name: str = "") -> Any:
    if isinstance(patch, list) and strategic and isinstance(old, list):
        if key := _KEYS.get(name):
            return _merge_list(old, patch, key)
        return old + [one for one in patch if one not in old] if name == "finalizers" else patch
    if not isinstance(patch, dict):
        return patch
    if strategic and patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if strategic and key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            new[field] = [one for one in new.get(field, []) if one not in value]
        elif value is None:
            new.pop(key, None)
        else:
            new[key] = _merge(new.get(key), value, strategic=strategic, name=key)
    return new


def _merge_list(old: list[Any], patch: list[Any], key: str) -> list[Any]:
    new = {one.get(key): one for one in old}
    for one in patch:
        if one.get("$patch") == "delete":
            new.pop(one.get(key), None)
        else:
            new[one.get(key)] = _merge(new.get(one.get(key)), one, strategic=True)
    return list(new.values())


def _json_step(obj: Any, step: dict[str, Any]) -> Any:
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
    new = node = _copy(obj)
    try:
        for part in parents:
            child = _copy(node[int(part) if isinstance(node, list) else part])
            node[int(part) if isinstance(node, list) else part] = child
            node = child
        if isinstance(node, list):
            _list_step(node, last, step)
        else:
            _dict_step(node, last, step)
    except (KeyError, IndexError, ValueError) as error:
        message = f"the server rejected our request due to an error in our request: {step['op']} {step['path']}"
        raise Refused(422, "Invalid", message) from error
    return new


def _list_step(node: list[Any], last: str, step: dict[str, Any]) -> None:
    match step["op"]:
        case "add":
            node.insert(len(node) if last == "-" else int(last), step["value"])
        case "remove":
            del node[int(last)]
        case "replace":
            node[int(last)] = step["value"]
        case "test":
            _test(node[int(last)], step)
        case other:
            raise bad_request(f"unexpected kind: {other}")


def _dict_step(node: dict[str, Any], last: str, step: dict[str, Any]) -> None:
    match step["op"]:
        case "add":
            node[last] = step["value"]
        case "remove":
            del node[last]
        case "replace":
            node[last]
            node[last] = step["value"]
        case "test":
            _test(node.get(last), step)
        case other:
            raise bad_request(f"unexpected kind: {other}")


def _test(value: Any, step: dict[str, Any]) -> None:
    if value != step["value"]:
        raise Refused(422, "Invalid", f"testing path {step['path']} value failed")


def _copy(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else list(value) if isinstance(value, list) else value
