"""Endpoints of installed packages: comparing environments, and installing packages."""

from apps.clusters import selectors
from apps.common.api import APIView, Body, Data, Query, Request, operation
from apps.common.errors import ApiError, ProblemsError
from apps.environments.api import packages_forms as forms
from apps.environments.packages import installation, presenters, surveys
from fermi.jobs.spec import Problem


class PackagesView(APIView):
    @operation("compareEnvironmentPackages", query=forms.PackagesQuery, data=forms.PackagesCompared)
    def get(self, request: Request, query: Query) -> Data:
        """Where environments differ in Python, torch, CUDA, NCCL and packages. Answers with what is known at once;
        what is not is looked at meanwhile (`looking`)."""
        ids = [key for text in query["ids"] for key in text.split(",") if key]
        if len(ids) > forms.MAX_ENVIRONMENTS:
            raise ProblemsError([Problem("ids", "ITEMS_AT_MOST", {"high": forms.MAX_ENVIRONMENTS})])
        environments, problems = selectors.select_environments(request.user, ids, "ids")
        if problems:
            raise ProblemsError(problems)
        seen = surveys.request_surveys(request.user, environments, query["python"], refresh=query["anew"])
        return presenters.serialize_comparison(seen)


class PackagesLevelView(APIView):
    @operation("levelEnvironmentPackages", body=forms.PackagesLevelRequest, data=forms.PackageInstallations, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """Installs packages into each of the environments (member); ask for the result until it is `over`."""
        together = installation.start_installations(request.user, body["ids"], body["packages"], body["python"])
        return presenters.serialize_installations(installation.list_installations(request.user, together))


class PackagesInstallationView(APIView):
    @operation("getEnvironmentInstallation", data=forms.PackageInstallations)
    def get(self, request: Request, installation_id: str) -> Data:
        """How the installations of one request get on, and what pip prints. Kept for a week."""
        if len(installation_id) > 40:
            raise ApiError(404, "NOT_FOUND")
        return presenters.serialize_installations(installation.list_installations(request.user, installation_id))
