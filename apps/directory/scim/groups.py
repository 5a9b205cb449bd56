"""Groups as directories write them. Each change of who is in a group applies the rules to those people, in the same
transaction."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from django.db import transaction
from django.db.models import Q
from scim2_models import PatchOp, Reference

from apps.accounts import audit
from apps.accounts.models import User
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.row_bounds import check_row_limit
from apps.directory.application import apply_rules
from apps.directory.models import MAX_EXTERNAL_ID, Directory, DirectoryUser, Group, GroupMember
from apps.directory.scim.member_patch import split_patch
from apps.directory.scim.people import lock_directory
from apps.directory.scim.resources import MAX_MEMBERS, ScimGroup, ScimMember


def find_group(directory: Directory, group_id: str) -> Group:
    """Return the group. Raises ApiError 404."""
    found = Group.objects.filter(directory=directory, pk=group_id).first()
    if found is None:
        raise ApiError(404, "NOT_FOUND")
    return found


@transaction.atomic
def create_group(directory: Directory, given: ScimGroup) -> Group:
    """Add a group with its members. Raises ApiError: 409 where there is one of the name, 400 for unknown members."""
    lock_directory(directory)
    check_row_limit("directory-groups", Group.objects.filter(directory=directory))
    row = Group(directory=directory, created_at=now())
    _store(row, given, read_values(given))
    return row


@transaction.atomic
def change_group(directory: Directory, group_id: str, given: ScimGroup) -> Group:
    """Replace a group's name and members. Raises ApiError as `create_group` does, and 404."""
    lock_directory(directory)
    row = find_group(directory, group_id)
    _store(row, given, read_values(given))
    return row


@transaction.atomic
def patch_group(directory: Directory, group_id: str, patch: PatchOp[ScimGroup]) -> Group:
    """Change parts of a group. Raises ApiError as `change_group` does, SCIMException for what cannot be applied."""
    lock_directory(directory)
    row = find_group(directory, group_id)
    given = make_resource(row, None)
    members, others = split_patch(patch, set(_list_members(row)))
    others.patch(given)
    _store(row, given, members)
    return row


@transaction.atomic
def delete_group(directory: Directory, group_id: str) -> None:
    """Delete a group; the people in it stay. Raises ApiError 404."""
    lock_directory(directory)
    row = find_group(directory, group_id)
    people = set(_list_members(row))
    audit.record_event(
        None, "directory-group.delete", row.pk, name=row.display_name, members=len(people), **_describe(row)
    )
    row.delete()
    _apply_to(people)


def read_members(groups: Sequence[Group], address: str = "") -> dict[str, list[ScimMember]]:
    """Return the members of each of these groups, by its id. `address`: of people; empty: members have none."""
    found: dict[str, list[ScimMember]] = defaultdict(list)
    rows = GroupMember.objects.filter(group__in=[group.pk for group in groups], person__deleted_at=None).order_by("pk")
    for group, person in rows.values_list("group", "person"):
        ref: Reference[Any] | None = Reference(f"{address}{person}") if address else None
        found[group].append(ScimMember(value=person, ref=ref))
    return found


def make_resource(row: Group, members: list[ScimMember] | None) -> ScimGroup:
    """Return a group as the directory wrote it."""
    return ScimGroup(
        id=row.pk, external_id=row.external_id or None, display_name=row.display_name, members=members or None
    )


def read_values(given: ScimGroup) -> set[str]:
    """Return the ids of a group's members."""
    return {one.value for one in given.members or [] if one.value}


def _store(row: Group, given: ScimGroup, after: set[str]) -> None:
    name, external_id = given.display_name or "", given.external_id or ""
    if len(external_id) > MAX_EXTERNAL_ID:
        raise ApiError(400, "FIELD_INVALID", "externalId", detail=f"> {MAX_EXTERNAL_ID}")
    others = Group.objects.filter(directory=row.directory).exclude(pk=row.pk)
    if others.filter(Q(display_name__iexact=name) | Q(external_id=external_id, external_id__gt="")).exists():
        raise ApiError(409, "SCIM_GROUP_EXISTS", "displayName", name=name)
    renamed = (row.display_name, row.external_id) != (name, external_id)
    is_new = row._state.adding
    before = set() if is_new else set(_list_members(row))
    _check_members(row.directory, after, after - before)
    row.display_name, row.external_id, row.updated_at = name, external_id, now()
    row.save()
    GroupMember.objects.filter(group=row, person__in=before - after).delete()
    GroupMember.objects.bulk_create([GroupMember(group=row, person_id=one) for one in sorted(after - before)])
    if is_new or renamed or before != after:
        verb, counts = "create" if is_new else "change", {"added": len(after - before), "removed": len(before - after)}
        audit.record_event(None, f"directory-group.{verb}", row.pk, project=None, name=name, **counts, **_describe(row))
    _apply_to(before | after if renamed else before ^ after)


def _list_members(row: Group) -> Iterable[str]:
    return GroupMember.objects.filter(group=row).values_list("person", flat=True)


def _check_members(directory: Directory, people: set[str], added: set[str]) -> None:
    """Raise ApiError 400 for too many members, and for a new one who is not the directory's."""
    if len(people) > MAX_MEMBERS:
        raise ApiError(400, "SCIM_MEMBERS_TOO_MANY", "members", limit=MAX_MEMBERS)
    known = DirectoryUser.objects.filter(directory=directory, deleted_at=None, pk__in=added)
    if unknown := added.difference(known.values_list("pk", flat=True)):
        raise ApiError(400, "SCIM_MEMBER_UNKNOWN", "members", member=min(unknown))


def _apply_to(people: set[str]) -> None:
    if people:
        apply_rules(User.objects.filter(directory_user__in=people))


def _describe(row: Group) -> dict[str, Any]:
    return {"by": "directory", "directory": row.directory_id}
