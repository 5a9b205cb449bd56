"""Makes people's stored roles those that the rules give, and tells beforehand what that would change."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple
from hashlib import sha256

from allauth.socialaccount.models import SocialAccount
from django.db import transaction
from django.db.models import Q

from apps.accounts.models import ApiToken, Membership, MembershipSource, Project, User
from apps.directory.identities import read_identities
from apps.directory.models import DirectoryUser, GroupProject, KeptRole, RoleRule, RuleAdministrator
from apps.directory.plans import MAX_GROUP_PROJECTS, NEW_PROJECT, PersonChanges, Plan
from apps.directory.roles import Rule, StoredRole, WantedRoles, compare, compute_roles, get_higher
from apps.directory.storage import store_changes


def make_rule(row: RoleRule) -> Rule:
    return Rule(
        claim=row.claim,
        pattern=row.pattern,
        provider=row.provider,
        project=row.project_id,
        create_project=row.create_project,
        administrator=row.administrator,
        role=row.role,
    )


def list_rules() -> list[Rule]:
    return [make_rule(row) for row in RoleRule.objects.order_by("pk")]


def plan_changes(rules: Sequence[Rule], users: Iterable[User] | None = None) -> Plan:
    """Return what the rules change about these people, or about all whom a provider or a directory knows, or who have a
    role by a rule. An inactive person has no group. Changes nothing."""
    people = _read_people(users)
    identities = read_identities(people)
    stored = _read_stored(people)
    projects_of_groups = dict(GroupProject.objects.values_list("group", "project"))
    made = set(projects_of_groups.values())
    marked = set(RuleAdministrator.objects.filter(user__in=people).values_list("user", flat=True))
    plan = Plan()
    for key, user in people.items():
        wanted = compute_roles(rules, identities[key]) if user.is_active else WantedRoles()
        if wanted is None:
            plan.unknown.append(user)
            continue
        plan.known += 1
        roles = dict(wanted.projects)
        for group, role in wanted.groups.items():
            project = projects_of_groups.get(group, f"{NEW_PROJECT}{group}")
            roles[project] = get_higher(roles.get(project), role)
        if wanted.undecided:
            plan.unknown.append(user)
        for project, has in stored[key].items():
            if has.by_rule and wanted.may_keep(project, of_group=project in made):
                roles[project] = get_higher(roles.get(project), has.role)
        changes = PersonChanges(user, compare(stored[key], roles))
        if wanted.administrator and not user.is_superuser:
            changes.administrator = True
        elif user.is_superuser and key in marked and not wanted.may_stay_administrator:
            changes.administrator = False
        if not changes.is_empty:
            plan.people.append(changes)
    names = {
        one.removeprefix(NEW_PROJECT) for row in plan.people for one in row.projects if one.startswith(NEW_PROJECT)
    }
    taken = set(Project.objects.filter(name__in=names).values_list("name", flat=True))
    taken |= set(sorted(names - taken)[max(0, MAX_GROUP_PROJECTS - len(projects_of_groups)) :])
    for row in plan.people:
        for name in taken:
            row.projects.pop(f"{NEW_PROJECT}{name}", None)
    plan.taken = sorted(taken)
    _keep_last_administrator(plan)
    plan.people = [row for row in plan.people if not row.is_empty]
    _find_ending_tokens(plan, stored)
    return plan


def make_fingerprint(rules: Iterable[Rule], plan: Plan) -> str:
    """Return a hash of the rules and of what they change: 64 hexadecimal digits. It is the same as long as saving does
    what the preview has shown."""
    changes = [
        [
            row.user.pk,
            [[key, astuple(change)] for key, change in sorted(row.projects.items())],
            row.administrator,
            row.last_administrator,
            [token.digest for token in row.tokens],
        ]
        for row in plan.people
    ]
    content = [
        sorted(json.dumps(astuple(rule)) for rule in rules),
        changes,
        [row.pk for row in plan.unknown],
        plan.taken,
    ]
    return sha256(json.dumps(content).encode()).hexdigest()


@transaction.atomic
def apply_rules(
    users: Iterable[User] | None = None,
    *,
    actor: User | None = None,
    check: Callable[[Sequence[Rule], Plan], None] | None = None,
) -> Plan:
    """Make the roles of these people, or of all, those that the rules give, and return what changed. `actor` None
    means the platform itself. `check` raises where the plan shall not be carried out."""
    lock_rules()
    rules = list_rules()
    plan = plan_changes(rules, users)
    if check is not None:
        check(rules, plan)
    store_changes(plan.people, actor)
    return plan


def lock_rules() -> None:
    """Let no other transaction apply rules, or change who is administrator, before this one ends."""
    list(RoleRule.objects.select_for_update(of=("self",)).order_by("pk").values_list("pk"))
    list(User.objects.select_for_update(of=("self",)).filter(is_superuser=True).order_by("pk").values_list("pk"))


def _read_people(users: Iterable[User] | None) -> dict[int, User]:
    rows = User.objects.filter(service_project=None)
    if users is None:
        by_rule = Membership.objects.filter(source=MembershipSource.RULE).values("user")
        rows = rows.filter(
            Q(pk__in=SocialAccount.objects.values("user"))
            | Q(pk__in=DirectoryUser.objects.values("user"))
            | Q(pk__in=by_rule)
            | Q(pk__in=RuleAdministrator.objects.values("user"))
        )
    else:
        rows = rows.filter(pk__in=[user.pk for user in users])
    return {user.pk: user for user in rows.order_by("username", "pk")}


def _read_stored(people: dict[int, User]) -> dict[int, dict[str, StoredRole]]:
    kept = {(row.user_id, row.project_id): row.role for row in KeptRole.objects.filter(user__in=people).order_by("pk")}
    stored: dict[int, dict[str, StoredRole]] = defaultdict(dict)
    for row in Membership.objects.filter(user__in=people).order_by("pk"):
        by_rule = row.source == MembershipSource.RULE
        before = kept.get((row.user_id, row.project_id)) if by_rule else None
        stored[row.user_id][row.project_id] = StoredRole(row.role, by_rule, before)
    return stored


def _keep_last_administrator(plan: Plan) -> None:
    """Leave one administrator who can sign in, where the rules would take the last."""
    losing = sorted((row for row in plan.people if row.administrator is False), key=lambda row: not row.user.is_active)
    if not losing:
        return
    rows = User.objects.filter(is_superuser=True, is_active=True)
    left = set(rows.values_list("pk", flat=True))
    left -= {row.user.pk for row in losing}
    if left or any(row.administrator for row in plan.people):
        return
    losing[0].administrator, losing[0].last_administrator = None, True


def _find_ending_tokens(plan: Plan, stored: dict[int, dict[str, StoredRole]]) -> None:
    """Find the tokens of projects whose person loses the role in the last of them."""
    losing = {row.user.pk: row for row in plan.people if any(one.after is None for one in row.projects.values())}
    for token in ApiToken.objects.filter(user__in=losing, projects__isnull=False).order_by("created"):
        row = losing[token.user_id]
        if row.user.is_superuser and row.administrator is not False:
            continue
        lost = {project for project, change in row.projects.items() if change.after is None}
        left = {*stored[token.user_id], *row.projects} - lost
        if lost & set(token.projects) and not left & set(token.projects):
            row.tokens.append(token)
