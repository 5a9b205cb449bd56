"""Computes which roles rules give by the claims of an identity provider. Pure: reads no database."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_GROUPS = 2_000  # of a person and claim; those behind them count for nothing
MAX_GROUP_LENGTH = 200
MAX_PROJECT_NAME = 100

ROLE_ORDER = ("viewer", "member", "maintainer")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, without the database. One of `project`, `create_project` and `administrator` is set."""

    claim: str
    pattern: str
    provider: str = ""
    project: str | None = None
    create_project: bool = False
    administrator: bool = False
    role: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a provider said of a person: `claims` is `extra_data` of allauth's SocialAccount. `named_only`: only rules
    that name the provider read it, which is then a directory."""

    provider: str
    claims: Mapping[str, Any] = field(default_factory=dict)
    named_only: bool = False

    def concerns(self, rule: Rule) -> bool:
        """Return whether the rule reads these claims."""
        return rule.provider == self.provider or (not rule.provider and not self.named_only)


@dataclass(frozen=True, slots=True)
class WantedRoles:
    """`projects`: role by project id; `groups`: role by the name of a group whose project rules make. `undecided`: the
    rules whose claim a provider left out because it has too many values; what they gave before stays."""

    projects: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    administrator: bool = False
    undecided: Sequence[Rule] = ()

    def may_keep(self, project: str, *, of_group: bool) -> bool:
        """Return whether an undecided rule may have given a role in the project; `of_group`: one that rules made."""
        return any(rule.project == project or (rule.create_project and of_group) for rule in self.undecided)

    @property
    def may_stay_administrator(self) -> bool:
        return self.administrator or any(rule.administrator for rule in self.undecided)


@dataclass(frozen=True, slots=True)
class StoredRole:
    """A role in the database. `kept`: the lower one that a person gave, under a rule's."""

    role: str
    by_rule: bool
    kept: str | None = None


@dataclass(frozen=True, slots=True)
class RoleChange:
    """A change of a stored role; `after` None removes it. `kept`: the person's role to remember, None forgets it."""

    before: str | None
    after: str | None
    by_rule: bool
    kept: str | None = None


def compute_roles(rules: Iterable[Rule], identities: Sequence[Identity]) -> WantedRoles | None:
    """Return the highest role that the rules give in each project; None where no claims are known: the person has never
    signed in, and no directory knows them."""
    known = [one for one in identities if one.claims]
    if not known:
        return None
    projects: dict[str, str] = {}
    groups: dict[str, str] = {}
    administrator = False
    undecided: list[Rule] = []
    for rule in rules:
        for identity in known:
            if not identity.concerns(rule):
                continue
            if is_left_out(identity.claims, rule.claim):
                undecided.append(rule)
                continue
            matched = [group for group in read_groups(identity.claims, rule.claim) if matches(rule.pattern, group)]
            if rule.administrator:
                administrator = administrator or bool(matched)
            elif rule.create_project:
                for group in matched:
                    name = group.strip()[:MAX_PROJECT_NAME]
                    groups[name] = get_higher(groups.get(name), rule.role)
            elif matched and rule.project:
                projects[rule.project] = get_higher(projects.get(rule.project), rule.role)
    return WantedRoles(projects, groups, administrator, tuple(undecided))


def compare(stored: Mapping[str, StoredRole], wanted: Mapping[str, str]) -> dict[str, RoleChange]:
    """Return the changes by project id that make the stored roles those wanted. A person's role stays unless the rule's
    is higher; then it is kept, and comes back when the rule's goes."""
    changes: dict[str, RoleChange] = {}
    for project in sorted({*stored, *wanted}):
        has, role = stored.get(project), wanted.get(project)
        by_person = None if has is None else has.kept if has.by_rule else has.role
        if role is not None and (by_person is None or get_rank(role) > get_rank(by_person)):
            after = StoredRole(role, True, by_person)
        elif by_person is not None:
            after = StoredRole(by_person, False)
        else:
            if has is not None:
                changes[project] = RoleChange(has.role, None, True)
            continue
        if after != has:
            changes[project] = RoleChange(has.role if has else None, after.role, after.by_rule, after.kept)
    return changes


def matches(pattern: str, group: str) -> bool:
    """Return whether a group is the pattern's, letter for letter; `*` at its end stands for any further letters."""
    return group.startswith(pattern[:-1]) if pattern.endswith("*") else group == pattern


def read_groups(claims: Mapping[str, Any], path: str) -> list[str]:
    """Return the texts at `path` (`groups`, `realm_access.roles`) of the ID token, of userinfo, and of the claims
    themselves (SAML), at most MAX_GROUPS. Whatever is no text, is empty or is too long counts for nothing."""
    found: dict[str, None] = {}
    for part in _list_parts(claims):
        value = _find_value(part, path)
        values = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        for one in values[:MAX_GROUPS]:
            if isinstance(one, str) and one.strip() and len(one) <= MAX_GROUP_LENGTH and "\x00" not in one:
                found[one] = None
    return list(found)[:MAX_GROUPS]


def is_left_out(claims: Mapping[str, Any], path: str) -> bool:
    """Return whether the provider left the claim out because of its size (Entra ID's "groups overage claim"): then
    `_claim_names` names it, or `hasgroups` is true."""
    if read_groups(claims, path):
        return False
    for part in _list_parts(claims):
        names = part.get("_claim_names")
        if isinstance(names, Mapping) and path in names:
            return True
        if path == "groups" and part.get("hasgroups") in (True, "true"):
            return True
    return False


def get_higher(first: str | None, second: str) -> str:
    return second if first is None or get_rank(second) > get_rank(first) else first


def get_rank(role: str) -> int:
    return ROLE_ORDER.index(role)


def _list_parts(claims: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = [claims.get("id_token"), claims.get("userinfo")]
    nested = [part for part in parts if isinstance(part, Mapping)]
    return nested or [claims]


def _find_value(claims: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path. Names of claims may contain dots themselves (`https://example.org/groups`)."""
    if path in claims:
        return claims[path]
    first, _, rest = path.partition(".")
    inner = claims.get(first)
    return _find_value(inner, rest) if rest and isinstance(inner, Mapping) else None
