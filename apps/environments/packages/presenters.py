"""Installed packages and installations, as the API returns them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from apps.common.nested_texts import said
from apps.environments.models import Installation, InstallationState
from apps.environments.packages.surveys import Seen
from fermi.planning import packages
from fermi.planning.packages import Difference, Look, Missing

LOOKING, KNOWN, FAILED = STATES = ("looking", "known", "failed")


def looks(seen: Iterable[Seen]) -> dict[str, Look]:
    """Return the surveys that found something, by environment id."""
    return {one.environment.pk: one.found for one in seen if one.found}


def compared(seen: Sequence[Seen]) -> dict[str, Any]:
    found = looks(seen)
    lacking = packages.lacking(found)
    return {
        "environments": [environment(one) for one in seen],
        "looking": any(one.looking for one in seen),
        "differences": [difference(one) for one in packages.differences(found)],
        "lacking": [
            {"name": one.name, "version": one.version, "environmentIds": list(one.environments),
             "requirement": one.requirement}
            for one in lacking
        ],
    }  # fmt: skip


def environment(one: Seen) -> dict[str, Any]:
    found = one.found
    return {
        "environmentId": one.environment.pk,
        "name": one.environment.name,
        "state": KNOWN if found else FAILED if one.error and not one.looking else LOOKING,
        "looking": one.looking,
        "lookedAt": one.looked_at,
        "python": found.python if found else "",
        "version": found.version if found else "",
        "torch": dict(found.torch) if found else {},
        "packageCount": len(found.distributions) if found else 0,
        "reason": reason(one.error),
    }


def reason(error: Mapping[str, Any] | None) -> dict[str, str] | None:
    if not error:
        return None
    params = {name: value for name, value in error.items() if name != "code"}
    message, hint = said(error["code"], params, None)
    return {"code": error["code"], "message": message, "hint": hint}


def difference(one: Difference) -> dict[str, Any]:
    return {"kind": one.kind, "name": one.name, "fatal": one.fatal, "values": dict(one.values)}


def missing(one: Missing) -> dict[str, Any]:
    return {
        "module": one.module,
        "place": one.place,
        "environmentIds": list(one.environments),
        "requirement": one.requirement,
        "anywhere": one.anywhere,
    }


def installations(rows: Sequence[Installation]) -> dict[str, Any]:
    return {
        "id": rows[0].together,
        "packages": rows[0].packages,
        "askedBy": rows[0].asked_by.username,
        "createdAt": rows[0].created_at,
        "over": all(row.state in (InstallationState.DONE, InstallationState.FAILED) for row in rows),
        "items": [
            {
                "environmentId": row.environment_id,
                "name": row.environment.name,
                "state": row.state,
                "exit": row.exit,
                "output": row.output,
                "reason": reason(row.error),
                "endedAt": row.ended_at,
            }
            for row in rows
        ],
    }
