"""Resolution of names to the ids that the API takes. What is chosen for the user is printed."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import click

from fermi.cli import output
from fermi.cli.texts import _
from fermi.client.client import Fermi
from fermi.client.types import ClusterItem, DatasetItem, DatasetVersionItem, ProjectItem


class NameResolver:
    """Resolves names. Each kind of object is fetched once, on first use. An unknown name is passed on unchanged: the
    platform reports it together with all other problems."""

    say = staticmethod(output.print_message)

    def __init__(self, fermi: Fermi) -> None:
        self._fermi = fermi

    @cached_property
    def _environments(self) -> list[Any]:
        return list(self._fermi.environments.list())

    @cached_property
    def _datasets(self) -> list[DatasetItem]:
        return list(self._fermi.datasets.list())

    def environments(self, given: Sequence[str]) -> list[str]:
        return [_resolve_id(name, self._environments, _("AN_ENVIRONMENT")) for name in given]

    def environment(self, given: str) -> str:
        [found] = self.environments([given])
        return found

    def reachable(self, given: str | None) -> str:
        """Return the id of the environment with this name, or of the only one that runs. Raise click.UsageError where
        there is none or several."""
        if given:
            return self.environment(given)
        running = [one for one in self._environments if is_reachable(one)]
        if not running:
            raise click.UsageError(_("NO_ENVIRONMENT_RUNS"))
        chosen = _choose_only(running, _("AN_ENVIRONMENT"), "--env")
        output.print_message(_("ENVIRONMENT_CHOSEN", name=chosen["name"], id=chosen["id"]))
        return str(chosen["id"])

    def template(self, given: str) -> str:
        return _resolve_id(given, self._fermi.environment_templates.list(), _("A_TEMPLATE"))

    def cluster(self, given: str | None, clusters: Sequence[ClusterItem]) -> str:
        if given:
            return _resolve_id(given, clusters, _("A_CLUSTER"))
        chosen: ClusterItem = _choose_only(clusters, _("A_CLUSTER"), _("ITS_NAME"))
        return chosen["id"]

    def project(self, given: str | None) -> str:
        known = list(self._fermi.projects.list())
        if given:
            return _resolve_id(given, known, _("A_PROJECT"))
        chosen: ProjectItem = _choose_only(known, _("A_PROJECT"), "--project")
        return chosen["id"]

    def agent_token(self, given: str) -> str:
        return _resolve_id(given, self._fermi.agent_tokens.list(), _("AN_AGENT_TOKEN"))

    def project_of(self, environments: Sequence[str]) -> str | None:
        """Return the project of these environments; None where they have several."""
        found = {one.get("projectId") for one in self._environments if one["id"] in environments}
        return found.pop() if len(found) == 1 else None

    def model(self, given: str | None) -> str:
        models = list(self._fermi.models.list())
        if given:
            return _resolve_id(given, models, _("A_MODEL"))
        chosen = _choose_only(models, _("A_MODEL"), "--model")
        output.print_message(_("MODEL_CHOSEN", name=chosen["name"], id=chosen["id"]))
        return chosen["id"]

    def dataset(self, dataset: str | None, version: str | None) -> tuple[str, str]:
        """Return the ids of a dataset and its version. Without a version: the newest that is ready, else the one in
        preparation (the task waits for it). Raise click.UsageError where there is none."""
        if not dataset:
            chosen = _choose_only(
                [found for found in self._datasets if _list_usable_versions(found)], _("A_DATASET"), "--dataset"
            )
        else:
            dataset_id = _resolve_id(dataset, self._datasets, _("A_DATASET"))
            known = next((item for item in self._datasets if item["id"] == dataset_id), None)
            if known is None:
                return dataset_id, version or ""
            chosen = known
        if version:
            return chosen["id"], _resolve_id(version, chosen["versions"], _("A_DATASET_VERSION"))
        usable = _list_usable_versions(chosen)
        if not usable:
            raise click.UsageError(_("DATASET_HAS_NO_VERSION", name=chosen["name"]))
        newest = max(usable, key=lambda item: (item["status"] == "ready", item["createdAt"]))
        place = {"name": chosen["name"], "id": chosen["id"], "version": newest["id"]}
        if newest["status"] == "ready":
            output.print_message(_("DATASET_CHOSEN", **place))
        else:
            output.print_message(_("DATASET_CHOSEN_NOT_READY", **place))
        return chosen["id"], newest["id"]


def is_reachable(environment: Mapping[str, Any]) -> bool:
    """Return True if the environment is managed and runs; older platforms have no such environments."""
    hosted = environment.get("hosted")
    return hosted is not None and hosted["state"] == "running"


def _list_usable_versions(dataset: DatasetItem) -> list[DatasetVersionItem]:
    return [version for version in dataset["versions"] if version["status"] != "failed"]


def _resolve_id(given: str, things: Iterable[Mapping[str, Any]], kind: str) -> str:
    """Return an id unchanged, or the id of the only object with this name. Raise click.UsageError where several have
    it."""
    known = list(things)
    if any(thing["id"] == given for thing in known):
        return given
    ids = [thing["id"] for thing in known if thing["name"] == given]
    if len(ids) > 1:
        raise click.UsageError(_("NAME_AMBIGUOUS", name=given, kind=kind, ids=", ".join(ids)))
    return ids[0] if ids else given


def _choose_only(things: Sequence[Any], kind: str, flag: str) -> Any:
    if len(things) == 1:
        return things[0]
    known = ", ".join(f"{thing['id']} ({thing['name']})" for thing in things) or "-"
    raise click.UsageError(_("CHOOSE_WITH_FLAG", kind=kind, flag=flag, known=known))
