"""The client's entry point."""

from collections.abc import Mapping, Sequence
from typing import Any, Self
from urllib.parse import quote

from fermi.client import config, plots
from fermi.client.accounts import Projects, Tokens
from fermi.client.agents import AgentTokens, Proposals
from fermi.client.audit import Audit
from fermi.client.code import Code
from fermi.client.costs import Costs
from fermi.client.differences import Differences
from fermi.client.drills import Drills
from fermi.client.environments import Environments, EnvironmentTemplates
from fermi.client.files import Files, Outputs
from fermi.client.history import Run
from fermi.client.identity import IdentityProviders
from fermi.client.inventory import Clusters, Datasets, Models
from fermi.client.notices import Notices
from fermi.client.pagination import Listing
from fermi.client.preflights import Preflights
from fermi.client.repetition import SavedTemplates, Schedules
from fermi.client.reservations import Reservations
from fermi.client.role_rules import RoleRules
from fermi.client.runs import Runs
from fermi.client.service_accounts import ServiceAccounts
from fermi.client.sessions import Sessions
from fermi.client.sweeps import Sweeps
from fermi.client.tasks import Tasks
from fermi.client.tensorboards import Tensorboards
from fermi.client.transport import Transport
from fermi.client.types import (
    AuditEventItem,
    FrameworkItem,
    FrameworkRecommendation,
    Me,
    QueueItem,
    TaskTemplate,
    ZoneItem,
)
from fermi.client.workers import Groups, Workers


class Fermi:
    """Client of one platform, for one caller. May be shared between threads.

        with Fermi() as fermi:
            task = fermi.tasks.create({"taskName": "first", ...})
            print(fermi.tasks.wait(task["taskId"])["status"])

    Without arguments, address and token come from `fermi.client.config.find_endpoint`. `lang` ("zh", "en", …) is the
    language of messages; a call fails after `timeout` seconds without a byte; calls that may be repeated are tried
    again `retries` times.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        lang: str | None = None,
        timeout: float = 30.0,
        retries: int = 4,
    ) -> None:
        place = config.find_endpoint(url, token)
        self.url = place.url
        self._transport = Transport(place, lang, timeout, retries)
        self.clusters = Clusters(self._transport)
        self.environments = Environments(self._transport)
        self.environment_templates = EnvironmentTemplates(self._transport)
        self.datasets = Datasets(self._transport)
        self.models = Models(self._transport)
        self.tasks = Tasks(self._transport)
        self.sweeps = Sweeps(self._transport)
        self.code = Code(self._transport)
        self.workers = Workers(self._transport)
        self.groups = Groups(self._transport)
        self.preflights = Preflights(self._transport)
        self.drills = Drills(self._transport)
        self.runs = Runs(self._transport)
        self.reservations = Reservations(self._transport)
        self.tokens = Tokens(self._transport)
        self.projects = Projects(self._transport)
        self.service_accounts = ServiceAccounts(self._transport)
        self.identity_providers = IdentityProviders(self._transport)
        self.sessions = Sessions(self._transport)
        self.agent_tokens = AgentTokens(self._transport)
        self.proposals = Proposals(self._transport)
        self.audit = Audit(self._transport)
        self.role_rules = RoleRules(self._transport)
        self.files = Files(self._transport)
        self.outputs = Outputs(self._transport)
        self.costs = Costs(self._transport)
        self.differences = Differences(self._transport)
        self.notices = Notices(self._transport)
        self.tensorboards = Tensorboards(self._transport)
        self.saved_templates = SavedTemplates(self._transport)
        self.schedules = Schedules(self._transport)

    def run(self, task_id: str) -> Run:
        """Return the task as a run that is read: curves, configuration, newest values, files."""
        return Run(self._transport, task_id)

    def plot_runs(
        self,
        tasks: str | Sequence[str],
        metrics: str | Sequence[str],
        *,
        axis: str = "step",
        smooth: float = 0.0,
        points: int = plots.POINTS,
    ) -> plots.RunPlot:
        """Return curves of up to 50 tasks as a picture for a notebook, one panel for each metric. `axis`: step, time,
        relativeTime, tokens, samples or gpuHours; `smooth`: weight of a moving average, 0 to below 1. Raise
        NotFoundError for a task that the caller may not see, FermiError for a metric that no task has or a value that
        the platform refuses."""
        ids, names = ([one] if isinstance(one, str) else [*one] for one in (tasks, metrics))
        return plots.plot_runs(self._transport, ids, names, axis, smooth, points)

    def me(self) -> Me:
        """Return the user that the token belongs to."""
        return self._transport.call("GET", "/auth/me")

    def zones(self) -> Listing[ZoneItem]:
        return Listing(self._transport, "/availability-zones", {})

    def frameworks(self) -> Listing[FrameworkItem]:
        """Return the frameworks that the platform can train with, and the JSON Schema of each one's options."""
        return Listing(self._transport, "/frameworks", {})

    def queue(
        self, project: str | None = None, *, cluster: str | None = None, search: str | None = None
    ) -> Listing[QueueItem]:
        """Return the tasks that wait, in the order in which they will start. Tasks that the caller may not see have no
        name."""
        return Listing(self._transport, "/queue", {"project": project, "cluster": cluster, "search": search})

    def templates(self) -> Listing[TaskTemplate]:
        """Return the use cases as requests, with the caller's environments that fit each, and what is missing."""
        return Listing(self._transport, "/task-templates", {})

    def template(self, template_id: str) -> TaskTemplate:
        return self._transport.call("GET", f"/task-templates/{quote(template_id, safe='')}")

    def recommend(
        self,
        environment_ids: Sequence[str],
        *,
        parameters: int | None = None,
        model: str | None = None,
        master: str | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
    ) -> FrameworkRecommendation:
        """Return the frameworks for a model of so many parameters (or for the model named, with these
        `hyperparameters`) on these environments, best first. Those that are rejected come with the reasons."""
        given = {
            "modelParameters": parameters,
            "modelId": model,
            "masterNode": master,
            "hyperparameters": hyperparameters,
        }
        body: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        body["environmentIds"] = [*environment_ids]
        return self._transport.call("POST", "/frameworks/recommend", json=body, repeatable=True)

    def audit_events(self, project: str | None = None) -> Listing[AuditEventItem]:
        """Return who did what, newest first, in one project or in all that the caller maintains."""
        return Listing(self._transport, "/audit-events", {"project": project})

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
