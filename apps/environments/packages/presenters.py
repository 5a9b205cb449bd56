"""Installed packages and installations, as the API returns them."""

from collections.abc import Sequence
from typing import Any

from apps.common.texts import serialize_error
from apps.environments.models import Installation, InstallationState
from apps.environments.packages import surveys
from apps.environments.packages.surveys import PackageSurvey
from fermi.planning import packages
from fermi.planning.packages import MissingModule, VersionDifference

LOOKING, KNOWN, FAILED = STATES = ("looking", "known", "failed")


def serialize_comparison(compared: Sequence[PackageSurvey]) -> dict[str, Any]:
    found = surveys.index_surveys(compared)
    lacking = packages.find_missing_distributions(found)
    return {
        "environments": [serialize_environment(one) for one in compared],
        "looking": any(one.looking for one in compared),
        "differences": [serialize_difference(one) for one in packages.find_differences(found)],
        "lacking": [
            {"name": one.name, "version": one.version, "environmentIds": list(one.environments),
             "requirement": one.requirement}
            for one in lacking
        ],
    }  # fmt: skip


def serialize_environment(survey: PackageSurvey) -> dict[str, Any]:
    found = survey.result
    return {
        "environmentId": survey.environment.pk,
        "name": survey.environment.name,
        "state": KNOWN if found else FAILED if survey.error and not survey.looking else LOOKING,
        "looking": survey.looking,
        "lookedAt": survey.looked_at,
        "python": found.python if found else "",
        "version": found.version if found else "",
        "torch": dict(found.torch) if found else {},
        "packageCount": len(found.distributions) if found else 0,
        "reason": serialize_error(survey.error),
    }


def serialize_difference(one: VersionDifference) -> dict[str, Any]:
    return {"kind": one.kind, "name": one.name, "fatal": one.fatal, "values": dict(one.values)}


def serialize_missing(one: MissingModule) -> dict[str, Any]:
    return {
        "module": one.module,
        "place": one.place,
        "environmentIds": list(one.environments),
        "requirement": one.requirement,
        "anywhere": one.anywhere,
    }


def serialize_installations(rows: Sequence[Installation]) -> dict[str, Any]:
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
                "reason": serialize_error(row.error),
                "endedAt": row.ended_at,
            }
            for row in rows
        ],
    }
