"""Makes people's stored roles those that the rules give, and tells beforehand what that would change."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, field
from hashlib import sha256

from allauth.socialaccount.models import SocialAccount
from django.db import transaction

from apps.accounts import audit
from apps.accounts.models import ApiToken, Membership, MembershipSource, Project, User
from apps.accounts.selectors import TOKEN_ID_LENGTH
from apps.directory.models import GroupProject, KeptRole, RoleRule, RuleAdministrator
from apps.directory.roles import Identity, RoleChange, Rule, StoredRole, compare, compute_roles, get_higher
from apps.identity.models import IdentityProvider
from apps.identity.selectors import list_configurations

MAX_GROUP_PROJECTS = 1_000  # that rules make
NEW_PROJECT = "new:"  # before the name of a group, in place of a project's id, until its project is made


@dataclass(slots=True)
class PersonChanges:
    """What the rules change about a person. `projects`: by project id, or NEW_PROJECT with the group's name.
    `administrator`: None stays as it is. `last_administrator`: the rules would take it, but nobody else has it.
    `tokens`: API tokens that end, because the person has no role left in any of their projects."""

    user: User
    projects: dict[str, RoleChange] = field(default_factory=dict)
    administrator: bool | None = None
    last_administrator: bool = False
    tokens: list[ApiToken] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.projects or self.administrator is not None or self.last_administrator)


@dataclass(slots=True)
class Plan:
    """What the rules change. `known`: how many people's claims were read. `unknown`: people whose claims are not known;
    they stay as they are. `taken`: names of groups whose project cannot be made: another project has the name, or there
    are MAX_GROUP_PROJECTS."""

    people: list[PersonChanges] = field(default_factory=list)
    known: int = 0
    unknown: list[User] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)


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
    """Return what the rules change about these people, or about all who have signed in by a provider. Inactive people
    are left alone: they cannot use a role. Changes nothing."""
    accounts = SocialAccount.objects.filter(user__is_active=True, user__service_project=None).select_related("user")
    if users is not None:
        accounts = accounts.filter(user__in=list(users))
    providers = {one.id for one in list_configurations(enabled=None)}
    providers |= set(IdentityProvider.objects.values_list("pk", flat=True))  # with those that cannot be decrypted
    people: dict[int, User] = {}
    identities: dict[int, list[Identity]] = defaultdict(list)
    for account in accounts.order_by("user__username", "pk"):
        people[account.user_id] = account.user
        claims = account.extra_data if isinstance(account.extra_data, dict) else {}
        if account.provider in providers:
            identities[account.user_id].append(Identity(account.provider, claims))
        else:  # a deleted provider vouches for nothing
            identities[account.user_id].append(Identity("", {"id_token": {}}))
    stored = _read_stored(people)
    projects_of_groups = dict(GroupProject.objects.values_list("group", "project"))
    marked = set(RuleAdministrator.objects.filter(user__in=people).values_list("user", flat=True))
    plan = Plan()
    for key, user in people.items():
        wanted = compute_roles(rules, identities[key])
        if wanted is None:
            plan.unknown.append(user)
            continue
        plan.known += 1
        roles = dict(wanted.projects)
        for group, role in wanted.groups.items():
            project = projects_of_groups.get(group, f"{NEW_PROJECT}{group}")
            roles[project] = get_higher(roles.get(project), role)
        changes = PersonChanges(user, compare(stored[key], roles))
        if wanted.administrator and not user.is_superuser:
            changes.administrator = True
        elif user.is_superuser and key in marked and not wanted.administrator:
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
    if users is not None:
        users = list(users)
    list(RoleRule.objects.select_for_update(of=("self",)).order_by("pk").values_list("pk"))  # one at a time
    list(User.objects.select_for_update(of=("self",)).filter(is_superuser=True).order_by("pk").values_list("pk"))
    rules = list_rules()
    plan = plan_changes(rules, users)
    if check is not None:
        check(rules, plan)
    for changes in plan.people:
        _store_changes(changes, actor)
    return plan


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
    losing = [row for row in plan.people if row.administrator is False]
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


def _store_changes(changes: PersonChanges, actor: User | None) -> None:
    user = changes.user
    for key, change in changes.projects.items():
        project = _make_project(key, actor) if key.startswith(NEW_PROJECT) else key
        if change.after is None:
            Membership.objects.filter(user=user, project=project).delete()
        else:
            source = MembershipSource.RULE if change.by_rule else MembershipSource.PERSON
            Membership.objects.update_or_create(
                user=user, project_id=project, defaults={"role": change.after, "source": source}
            )
        if change.kept is None:
            KeptRole.objects.filter(user=user, project=project).delete()
        else:
            KeptRole.objects.update_or_create(user=user, project_id=project, defaults={"role": change.kept})
        verb = "remove" if change.after is None else "add" if change.before is None else "change"
        audit.record_event(
            actor, f"member.{verb}", user.username, project=project, role=change.after, before=change.before, by="rule"
        )
    if changes.administrator is not None:
        _set_administrator(user, changes.administrator, actor)
    if changes.last_administrator:
        audit.record_event(actor, "administrator.stay", user.username, reason="last", by="rule")
    for token in changes.tokens:
        audit.record_event(actor, "token.revoke", token.digest[:TOKEN_ID_LENGTH], user=user.username, by="rule")
        token.delete()


def _make_project(key: str, actor: User | None) -> str:
    """Return the id of the project of a group, made where there is none yet. `key`: NEW_PROJECT with the group."""
    name = key.removeprefix(NEW_PROJECT)
    found = GroupProject.objects.filter(group=name).first()
    if found:
        return str(found.project_id)
    project = Project.objects.create(name=name)
    GroupProject.objects.create(group=name, project=project)
    audit.record_event(actor, "project.create", project.pk, project=project, name=name, by="rule")
    return project.pk


def _set_administrator(user: User, administrator: bool, actor: User | None) -> None:
    User.objects.filter(pk=user.pk).update(is_superuser=administrator)
    user.is_superuser = administrator
    if administrator:
        RuleAdministrator.objects.get_or_create(user=user)
    else:
        RuleAdministrator.objects.filter(user=user).delete()
    audit.record_event(actor, f"administrator.{'add' if administrator else 'remove'}", user.username, by="rule")
