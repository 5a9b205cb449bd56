"""What a token with a purse may do, by operation of the API. Operations that only read are free and not listed."""

from enum import StrEnum


class Rule(StrEnum):
    """`FREE`: spends nothing. `CHECKED`: creates tasks, each of which is checked as it is stored. `OWN`: as `CHECKED`
    for tasks that the token created, otherwise `PROPOSED`. `PROPOSED`: only after a person approved it. `REFUSED`."""

    FREE = "free"
    CHECKED = "checked"
    OWN = "own"
    PROPOSED = "proposed"
    REFUSED = "refused"


REFUSED_RESOURCES = frozenset(
    {"account", "agents", "audit", "identity", "notices", "people", "secrets", "tokens", "usage", "workers"}
)
"""Resources whose operations are refused unless RULES lists them: a proposal could change who the person is, show a
value once, or let the agent widen its own rights."""

RULES: dict[str, Rule] = {
    **dict.fromkeys(
        (
            "askOwner",
            "beginUpload",
            "cancelUpload",
            "changeRun",
            "changeRuns",
            "cloneTask",
            "createRunView",
            "changeRunView",
            "fetchCode",
            "finishSnapshot",
            "finishUpload",
            "keepEnvironment",
            "makeFolder",
            "pauseSweep",
            "pauseTask",
            "putSnapshot",
            "putSnapshotBlobs",
            "readInbox",
            "sendPiece",
            "stopDrill",
            "stopPreflight",
            "stopSweep",
            "stopTask",
            "syncTrackerRuns",
            "testDiagnosisRules",
        ),
        Rule.FREE,
    ),
    **dict.fromkeys(("createTask", "createTaskFromTemplate", "retryTask"), Rule.CHECKED),
    **dict.fromkeys(("restartTask", "resumeTask"), Rule.OWN),
    **dict.fromkeys(
        (
            "addDataset",
            "addDatasetVersion",
            "addModel",
            "changeEnvironment",
            "changeEnvironmentTemplate",
            "changeLogPattern",
            "changeReservation",
            "changeSavedTemplate",
            "changeSchedule",
            "cleanLibraryCache",
            "cloneBestTrial",
            "cloneEnvironment",
            "createDrill",
            "createEnvironmentTemplate",
            "createPreflight",
            "createReservation",
            "createSavedTemplate",
            "createSchedule",
            "createSweep",
            "deleteEnvironmentTemplate",
            "deleteFile",
            "deleteReservation",
            "deleteSavedTemplate",
            "deleteSchedule",
            "deleteSweep",
            "deleteTask",
            "endTensorboard",
            "growTask",
            "levelEnvironmentPackages",
            "makeEnvironment",
            "moveFile",
            "moveTask",
            "openTensorboard",
            "registerEnvironment",
            "removeEnvironment",
            "resizeEnvironment",
            "restartEnvironment",
            "resumeSweep",
            "runSchedule",
            "startEnvironment",
            "stopEnvironment",
        ),
        Rule.PROPOSED,
    ),
    # Connections of clusters contain credentials, which no proposal may store.
    **dict.fromkeys(("changeCluster", "checkCluster", "createCluster", "deleteCluster"), Rule.REFUSED),
    # A connection cannot be approved later, and a command in an environment spends what nothing counts.
    **dict.fromkeys(("endKernel", "openDoor"), Rule.REFUSED),
    # Who is in a project, and what it may spend, is for people alone.
    **dict.fromkeys(
        (
            "addMember",
            "changeMember",
            "changeServiceAccount",
            "createProject",
            "createServiceAccount",
            "deleteProject",
            "deleteServiceAccount",
            "deleteUserLimits",
            "putDiagnosisRules",
            "putLimits",
            "putUserLimits",
            "removeMember",
            "renameProject",
            "setProjectWarm",
        ),
        Rule.REFUSED,
    ),
}


def find_rule(operation: str, scope: str | None, method: str) -> Rule:
    """Return the rule for an operation; one that nobody classified is proposed, or refused by its resource."""
    resource, _, verb = (scope or "").partition(":")
    if operation in RULES:
        return RULES[operation]
    if method in ("GET", "HEAD", "OPTIONS") or verb == "read" or scope == "any":
        return Rule.FREE
    return Rule.REFUSED if resource in REFUSED_RESOURCES or not verb else Rule.PROPOSED
