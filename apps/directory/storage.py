"""Stores what the rules change about people, in a number of queries that does not grow with that of the people."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from apps.accounts import audit
from apps.accounts.models import ApiToken, Membership, MembershipSource, Project, User
from apps.accounts.selectors import TOKEN_ID_LENGTH
from apps.directory.models import GroupProject, KeptRole, RuleAdministrator
from apps.directory.plans import NEW_PROJECT, PersonChanges


def store_changes(people: Sequence[PersonChanges], actor: User | None) -> None:
    """Store the changes and record each in the audit trail. `actor` None means the platform itself. Runs in the
    caller's transaction."""
    projects = _make_projects({key for row in people for key in row.projects if key.startswith(NEW_PROJECT)}, actor)
    events: list[dict[str, Any]] = []
    lost: dict[str, list[int]] = defaultdict(list)
    forgotten: dict[str, list[int]] = defaultdict(list)
    roles, kept = [], []
    for row in people:
        user = row.user
        for key, change in row.projects.items():
            project = projects.get(key, key)
            if change.after is None:
                lost[project].append(user.pk)
            else:
                source = MembershipSource.RULE if change.by_rule else MembershipSource.PERSON
                roles.append(Membership(user=user, project_id=project, role=change.after, source=source))
            if change.kept is None:
                forgotten[project].append(user.pk)
            else:
                kept.append(KeptRole(user=user, project_id=project, role=change.kept))
            verb = "remove" if change.after is None else "add" if change.before is None else "change"
            about = {"project": project, "role": change.after, "before": change.before}
            events.append({"action": f"member.{verb}", "target": user.username, **about})
        if row.last_administrator:
            events.append({"action": "administrator.stay", "target": user.username, "reason": "last"})
        for token in row.tokens:
            target = token.digest[:TOKEN_ID_LENGTH]
            events.append({"action": "token.revoke", "target": target, "user": user.username})
    for project, users in lost.items():
        Membership.objects.filter(project=project, user__in=users).delete()
    for project, users in forgotten.items():
        KeptRole.objects.filter(project=project, user__in=users).delete()
    one_each = ["project", "user"]
    Membership.objects.bulk_create(
        roles, update_conflicts=True, unique_fields=one_each, update_fields=["role", "source"]
    )
    KeptRole.objects.bulk_create(kept, update_conflicts=True, unique_fields=one_each, update_fields=["role"])
    ApiToken.objects.filter(pk__in=[token.pk for row in people for token in row.tokens]).delete()
    events += _set_administrators([row.user for row in people if row.administrator is True], True)
    events += _set_administrators([row.user for row in people if row.administrator is False], False)
    audit.record_events(actor, [{**event, "by": "rule"} for event in events])


def _make_projects(keys: Iterable[str], actor: User | None) -> dict[str, str]:
    """Return the ids of the projects of groups, made where there are none yet. The keys: NEW_PROJECT with the group."""
    found = dict(GroupProject.objects.values_list("group", "project"))
    made: dict[str, str] = {}
    for key in sorted(keys):
        name = key.removeprefix(NEW_PROJECT)
        if name not in found:
            project = Project.objects.create(name=name)
            GroupProject.objects.create(group=name, project=project)
            audit.record_event(actor, "project.create", project.pk, project=project, name=name, by="rule")
            found[name] = project.pk
        made[key] = found[name]
    return made


def _set_administrators(users: Sequence[User], administrator: bool) -> list[dict[str, Any]]:
    """Store who is administrator by a rule, and return the events to record."""
    User.objects.filter(pk__in=[user.pk for user in users]).update(is_superuser=administrator)
    for user in users:
        user.is_superuser = administrator
    if administrator:
        RuleAdministrator.objects.bulk_create([RuleAdministrator(user=user) for user in users], ignore_conflicts=True)
    else:
        RuleAdministrator.objects.filter(user__in=users).delete()
    verb = "add" if administrator else "remove"
    return [{"action": f"administrator.{verb}", "target": user.username} for user in users]
