from typing import Any

import pytest
from scim2_models import Context, PatchOp, SCIMException

from apps.directory.scim.member_patch import split_patch
from apps.directory.scim.resources import POLICY, ScimGroup

URN = "urn:ietf:params:scim:schemas:core:2.0:Group:"


def split(*operations: dict[str, Any]) -> tuple[set[str], list[Any]]:
    """Return what becomes of the members a and b, and the values of the operations that are left."""
    body = {"schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"], "Operations": list(operations)}
    with POLICY:
        patch: Any = PatchOp[ScimGroup].model_validate(body, scim_ctx=Context.RESOURCE_PATCH_REQUEST)
        members, others = split_patch(patch, {"a", "b"})
    return members, [one.value for one in others.operations or []]


@pytest.mark.parametrize(
    ("operation", "members"),
    [
        ({"op": "add", "path": "members", "value": [{"value": "c"}, {"value": "a", "display": "A"}]}, {"a", "b", "c"}),
        ({"op": "Add", "path": f"{URN}members", "value": {"value": "c"}}, {"a", "b", "c"}),
        ({"op": "replace", "path": "members", "value": [{"value": "c"}]}, {"c"}),
        ({"op": "replace", "path": "Members", "value": []}, set()),
        ({"op": "remove", "path": "members"}, set()),
        ({"op": "Remove", "path": "members", "value": [{"value": "a"}, {"value": "z"}]}, {"b"}),
        ({"op": "remove", "path": 'members[value eq "a"]'}, {"b"}),
        ({"op": "remove", "path": 'members[value eq "z"]'}, {"a", "b"}),
        ({"op": "replace", "value": {"members": [{"value": "c"}]}}, {"c"}),
    ],
)
def test_members_are_added_removed_and_replaced(operation: dict[str, Any], members: set[str]) -> None:
    assert split(operation) == (members, [])


def test_what_concerns_no_member_is_left() -> None:
    both = {"op": "replace", "value": {"displayName": "ml", "members": [{"value": "c"}]}}
    assert split(both, {"op": "replace", "path": "externalId", "value": "g"}) == ({"c"}, [{"displayName": "ml"}, "g"])


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": 'members[value eq "a" or value eq "b"]'},
        {"op": "add", "path": "members", "value": [{"value": 1}]},
        {"op": "add", "path": "members", "value": [{"value": "x" * 41}]},
        {"op": "add", "path": "members", "value": [[]]},
    ],
)
def test_other_changes_of_members_are_refused(operation: dict[str, Any]) -> None:
    with pytest.raises((SCIMException, ValueError)):
        split(operation)
