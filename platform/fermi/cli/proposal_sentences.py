"""What an agent wants of a person, in one sentence."""

from urllib.parse import parse_qs, urlsplit

from fermi.cli.texts import _
from fermi.client.types import ProposalItem

API_PREFIX = "/api/v1/"


def describe_request(proposal: ProposalItem) -> str:
    """Return the sentence of a proposal, in the user's language. What is meant is named by its name, else its id."""
    address, body = urlsplit(proposal["path"]), proposal["body"]
    plan = proposal["plan"]
    if plan:
        return _("PROPOSAL_CREATE_TASK", target=plan["name"])
    names = [body.get("taskName"), body.get("name"), *parse_qs(address.query).get("path", [])]
    names += address.path.removeprefix(API_PREFIX).split("/")[1:2]
    target = next((name for name in names if isinstance(name, str) and name), "")
    other = _("PROPOSAL_OTHER_REQUEST", operation=proposal["operation"], method=proposal["method"], path=address.path)
    return _list_sentences(target).get(proposal["operation"], other)


def _list_sentences(target: str) -> dict[str, str]:
    """Return the sentences by operation."""
    return {
        "addDataset": _("PROPOSAL_ADD_DATASET", target=target),
        "addDatasetVersion": _("PROPOSAL_ADD_DATASET_VERSION", target=target),
        "addModel": _("PROPOSAL_ADD_MODEL", target=target),
        "changeEnvironment": _("PROPOSAL_CHANGE_ENVIRONMENT", target=target),
        "changeEnvironmentTemplate": _("PROPOSAL_CHANGE_ENVIRONMENT_TEMPLATE", target=target),
        "changeLogPattern": _("PROPOSAL_CHANGE_LOG_PATTERN", target=target),
        "changeReservation": _("PROPOSAL_CHANGE_RESERVATION", target=target),
        "changeSavedTemplate": _("PROPOSAL_CHANGE_SAVED_TEMPLATE", target=target),
        "changeSchedule": _("PROPOSAL_CHANGE_SCHEDULE", target=target),
        "cleanLibraryCache": _("PROPOSAL_CLEAN_LIBRARY_CACHE", target=target),
        "cloneBestTrial": _("PROPOSAL_CLONE_BEST_TRIAL", target=target),
        "cloneEnvironment": _("PROPOSAL_CLONE_ENVIRONMENT", target=target),
        "createDrill": _("PROPOSAL_CREATE_DRILL"),
        "createEnvironmentTemplate": _("PROPOSAL_CREATE_ENVIRONMENT_TEMPLATE", target=target),
        "createPreflight": _("PROPOSAL_CREATE_PREFLIGHT"),
        "createReservation": _("PROPOSAL_CREATE_RESERVATION"),
        "createSavedTemplate": _("PROPOSAL_CREATE_SAVED_TEMPLATE", target=target),
        "createSchedule": _("PROPOSAL_CREATE_SCHEDULE", target=target),
        "createSweep": _("PROPOSAL_CREATE_SWEEP", target=target),
        "createTask": _("PROPOSAL_CREATE_TASK", target=target),
        "deleteEnvironmentTemplate": _("PROPOSAL_DELETE_ENVIRONMENT_TEMPLATE", target=target),
        "deleteFile": _("PROPOSAL_DELETE_FILE", target=target),
        "deleteReservation": _("PROPOSAL_DELETE_RESERVATION", target=target),
        "deleteSavedTemplate": _("PROPOSAL_DELETE_SAVED_TEMPLATE", target=target),
        "deleteSchedule": _("PROPOSAL_DELETE_SCHEDULE", target=target),
        "deleteSweep": _("PROPOSAL_DELETE_SWEEP", target=target),
        "deleteTask": _("PROPOSAL_DELETE_TASK", target=target),
        "endTensorboard": _("PROPOSAL_END_TENSORBOARD", target=target),
        "growTask": _("PROPOSAL_GROW_TASK", target=target),
        "levelEnvironmentPackages": _("PROPOSAL_LEVEL_ENVIRONMENT_PACKAGES"),
        "makeEnvironment": _("PROPOSAL_MAKE_ENVIRONMENT", target=target),
        "moveFile": _("PROPOSAL_MOVE_FILE", target=target),
        "moveTask": _("PROPOSAL_MOVE_TASK", target=target),
        "openTensorboard": _("PROPOSAL_OPEN_TENSORBOARD"),
        "registerEnvironment": _("PROPOSAL_REGISTER_ENVIRONMENT", target=target),
        "removeEnvironment": _("PROPOSAL_REMOVE_ENVIRONMENT", target=target),
        "resizeEnvironment": _("PROPOSAL_RESIZE_ENVIRONMENT", target=target),
        "restartEnvironment": _("PROPOSAL_RESTART_ENVIRONMENT", target=target),
        "restartTask": _("PROPOSAL_RESTART_TASK", target=target),
        "resumeSweep": _("PROPOSAL_RESUME_SWEEP", target=target),
        "resumeTask": _("PROPOSAL_RESUME_TASK", target=target),
        "runSchedule": _("PROPOSAL_RUN_SCHEDULE", target=target),
        "startEnvironment": _("PROPOSAL_START_ENVIRONMENT", target=target),
        "stopEnvironment": _("PROPOSAL_STOP_ENVIRONMENT", target=target),
    }
