"""The rights that a token may be given: one scope per operation of the API.

A scope is `<resource>:<verb>`. `write` contains `read` of the same resource. A token without a list of scopes has all
rights of its user; a token with one has those rights only for the operations of these scopes, as far as the user has
them. `docs/tokens.md` has the table for users.
"""

from collections.abc import Collection
from dataclasses import dataclass

ANY = "any"
"""Scope of operations that every token may call: what belongs to no project and tells nothing about its user."""
WORKER = "worker"
"""Scope of what worker agents call with credentials of their own. No user's token has it."""

RESOURCES: dict[str, tuple[str, ...]] = {
    "account": ("read", "write"),
    "agents": ("read", "write"),
    "audit": ("read",),
    "clusters": ("read", "write"),
    "code": ("read", "write"),
    "data": ("read", "write"),
    "environments": ("read", "write", "open"),
    "files": ("read", "write"),
    "identity": ("read", "write"),
    "notices": ("read", "write"),
    "outputs": ("read",),
    "people": ("read", "write"),
    "projects": ("read", "write"),
    "reservations": ("read", "write"),
    "runs": ("read", "write"),
    "schedules": ("read", "write"),
    "secrets": ("read", "write"),
    "sweeps": ("read", "write"),
    "tasks": ("read", "write"),
    "templates": ("read", "write"),
    "tensorboards": ("read", "write"),
    "tokens": ("read", "write"),
    "tracking": ("write",),
    "usage": ("read", "write"),
    "workers": ("read", "write"),
}
SCOPES = tuple(f"{resource}:{verb}" for resource, verbs in RESOURCES.items() for verb in verbs)
OPERATION_SCOPES = frozenset((*SCOPES, ANY, WORKER))


@dataclass(frozen=True, slots=True)
class TokenRights:
    """What a token leaves of its user's rights. None: all.

    `scopes`: of operations. `projects`, `tasks`: ids; what belongs to another project does not exist for the token, and
    operations that name no task are refused to a token of tasks. `administrator`: its user is one; a token of projects
    is then a maintainer's in these projects and nothing elsewhere.
    """

    token: str
    name: str
    scopes: frozenset[str] | None = None
    projects: frozenset[str] | None = None
    tasks: frozenset[str] | None = None
    administrator: bool = False

    @property
    def narrow(self) -> bool:
        """True if the token has fewer rights than its user."""
        return self.scopes is not None or self.projects is not None or self.tasks is not None

    def has_scope(self, scope: str) -> bool:
        """Return True if the token may call operations of the scope."""
        return scope != WORKER and (self.scopes is None or scope == ANY or contains_scope(self.scopes, scope))


def contains_scope(scopes: Collection[str], scope: str) -> bool:
    """Return True if these scopes contain this one."""
    resource, _, verb = scope.partition(":")
    return scope in scopes or (verb == "read" and f"{resource}:write" in scopes)
