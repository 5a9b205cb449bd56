"""Applies a PATCH to a group's members as to a set: the library compares each of thousands, which takes seconds while
roles are locked."""

import re
from collections.abc import Mapping
from typing import Any

from scim2_models import InvalidPathException, InvalidValueException, PatchOp

from apps.directory.scim.resources import ScimGroup

MAX_ID = 40
MEMBERS = re.compile(r"(?:urn:ietf:params:scim:schemas:core:2\.0:Group:)?members", re.IGNORECASE)
ONE_MEMBER = re.compile(MEMBERS.pattern + r'\[\s*value\s+eq\s+"([^"\\]{1,40})"\s*\]', re.IGNORECASE)


def split_patch(patch: PatchOp[ScimGroup], members: set[str]) -> tuple[set[str], PatchOp[ScimGroup]]:
    """Return the members after the patch, and the patch without what it does to them. Raises SCIMException for what
    neither adds, removes nor replaces whole members."""
    others = []
    for operation in patch.operations or []:
        path, verb = str(operation.path or ""), operation.op.value
        if not path and isinstance(operation.value, Mapping):
            named = [key for key in operation.value if MEMBERS.fullmatch(str(key))]
            for key in named:
                members = _apply(verb, members, operation.value[key])
            rest = {key: one for key, one in operation.value.items() if key not in named}
            if rest or not named:
                others.append(operation.model_copy(update={"value": rest}))
        elif MEMBERS.fullmatch(path):
            members = _apply(verb, members, operation.value)
        elif (found := ONE_MEMBER.fullmatch(path)) and verb == "remove":
            members = members - {found[1]}
        elif MEMBERS.match(path):
            raise InvalidPathException(path=path)
        else:
            others.append(operation)
    return members, patch.model_copy(update={"operations": others})


def _apply(verb: str, members: set[str], value: Any) -> set[str]:
    if verb == "remove" and value is None:
        return set()
    given = _read_ids(value)
    return {"add": members | given, "remove": members - given}.get(verb, given)


def _read_ids(value: Any) -> set[str]:
    """Return the ids in `[{"value": …}, …]`, or in one such object; null is none. Raises SCIMException."""
    found = set()
    for one in [] if value is None else value if isinstance(value, list) else [value]:
        key = one.get("value") if isinstance(one, Mapping) else one
        if not isinstance(key, str) or not 0 < len(key) <= MAX_ID:
            raise InvalidValueException(attribute="members", detail='members are objects with the text "value"')
        found.add(key)
    return found
