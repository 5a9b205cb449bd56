"""What applying the rules changes, as it is shown before and stored after."""

from dataclasses import dataclass, field

from apps.accounts.models import ApiToken, User
from apps.directory.roles import RoleChange

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
