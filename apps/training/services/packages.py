"""Compares the packages of the environments in which a task's ranks would run: where they differ, and which modules of
its script are missing. Uses what earlier surveys found; environments not surveyed yet are surveyed meanwhile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.accounts.models import User
from apps.clusters.models import DevEnvironment
from apps.environments import standby
from apps.environments.packages import surveys
from apps.environments.packages.surveys import PackageSurvey
from fermi.jobs.spec import JobSpec, Problem
from fermi.planning import packages
from fermi.planning.imports import Imports
from fermi.planning.packages import MissingModule, VersionDifference

MAX_LISTED = 5
"""Most modules, and packages, that a warning describes."""


@dataclass(frozen=True, slots=True)
class PackageReport:
    """Packages of the environments in which ranks run; empty where there are none."""

    surveys: Sequence[PackageSurvey] = ()
    differences: Sequence[VersionDifference] = ()
    missing: Sequence[MissingModule] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    python: str = ""

    @property
    def level(self) -> list[str]:
        """Return the requirements that would install the missing modules and the packages that some environments
        lack."""
        return list(dict.fromkeys(one.requirement for one in self.missing if one.requirement))

    def warnings(self) -> list[Problem]:
        """Return the warnings about missing and different packages."""
        found = [self._missing(one) for one in self.missing[:MAX_LISTED]]
        if rest := self.missing[MAX_LISTED:]:
            found.append(Problem("", "IMPORTS_MISSING_MORE", {"modules": ", ".join(one.module for one in rest)}))
        if self.differences:
            fatal = [one for one in self.differences if one.fatal]
            named = (fatal or self.differences)[:MAX_LISTED]
            params: dict[str, Any] = {
                "differences": "; ".join(map(self._told, named)),
                "command": f"fermi environments packages {self._ids()}",
            }
            if more := len(self.differences) - len(named):
                params["more"] = more
            found.append(Problem("", "PACKAGES_DIFFER_FATALLY" if fatal else "PACKAGES_DIFFER", params))
        return found

    def _missing(self, one: MissingModule) -> Problem:
        where = ", ".join(self.names[key] for key in one.environments)
        params = {"module": one.module, "place": one.place, "environments": where}
        if one.requirement:
            params["command"] = f"fermi environments level {self._ids()} --package {one.requirement}"
        return Problem("", "IMPORT_MISSING", params)

    def _told(self, one: VersionDifference) -> str:
        """Return the versions of a package as text, such as `torch 2.5.1 (a, b), 2.4.0 (c)`."""
        by_version: dict[str, list[str]] = {}
        for key, version in one.values.items():
            by_version.setdefault(version or "–", []).append(self.names[key])
        return f"{one.name} " + ", ".join(f"{version} ({', '.join(where)})" for version, where in by_version.items())

    def _ids(self) -> str:
        return " ".join(one.environment.pk for one in self.surveys)


def compare_packages(
    user: User, job: JobSpec, environments: Sequence[DevEnvironment], imports: Imports, *, start_surveys: bool
) -> PackageReport:
    """Return the package report. `environments`: at least those of the job; those that are to be created have nothing
    yet. `start_surveys`: whether environments that are not surveyed yet are surveyed."""
    inside = {node.id for node in job.nodes if node.way is not None and node.way.inside}
    within = [one for one in environments if one.pk in inside and not one._state.adding]
    if not within:
        return PackageReport()
    standby.request_standby(within)  # it stands by before the button is pressed
    seen = surveys.request_surveys(user, within, job.python, list(imports.needed), may_schedule=start_surveys)
    known = surveys.index_surveys(seen)
    found = packages.filter_relevant(packages.find_differences(known), known, imports)
    return PackageReport(
        seen, found, packages.find_missing_modules(known, imports), {one.pk: one.name for one in within}, job.python
    )
