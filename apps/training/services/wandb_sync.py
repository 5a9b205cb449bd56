"""Lists the runs of a task at W&B, and sends those that were offline: by a task that runs `wandb sync` over their
folders, with the project's secret as its key.

    found in the outputs ──▶ offline ──▶ syncing ──▶ synced
                                ▲           │ the task has failed
                                └───────────┘
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from apps.accounts import secrets
from apps.accounts.models import Role, User
from apps.common.errors import ApiError
from apps.files.services import outputs
from apps.training.core.tracker_runs import MAX_RUNS, find_page, open_outputs
from apps.training.models import Task, TrackerRun
from apps.training.services.actions import find_task
from apps.training.services.create import submit_request
from apps.training.states import ACTIVE_STATES
from fermi.engines.safe_tree import SafeTree
from fermi.planning.request import MAX_NAME_LENGTH

SOURCE, KEY_VARIABLE = "wandb", "WANDB_API_KEY"
FOLDER = "wandb"
MAX_SYNC_SECONDS = 6 * 3600
SYNC_TAG = "wandb-sync"
_OFFLINE_RUN = re.compile(r"offline-run-\d{8}_\d{6}-([^\s/\\#?%:]{1,128})")
_OWN_VARIABLES = ("WANDB_MODE", "WANDB_DIR", "WANDB_RUN_ID", "WANDB_RESUME", KEY_VARIABLE)
"""Not handed from the task to the one that sends its runs; others, such as WANDB_BASE_URL and WANDB_ENTITY, are."""
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")

SCRIPT = """
import glob, os, re, shutil, subprocess, sys, tempfile
given, work = os.environ['FERMI_AFTER_OUTPUTS'], tempfile.mkdtemp()
sent = os.path.join(os.environ['FERMI_OUTPUT_DIR'], 'synced')
os.makedirs(sent, exist_ok=True)
os.environ['WANDB_DIR'] = os.environ['WANDB_CACHE_DIR'] = os.environ['WANDB_CONFIG_DIR'] = work
copies, pages = [], dict()
for folder in sys.argv[1:]:
    copies.append(os.path.join(work, os.path.basename(folder)))
    shutil.copytree(os.path.join(given, folder), copies[-1], symlinks=True)
command = [sys.executable, '-m', 'wandb', 'sync', *copies]
with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace') as sync:
    for line in sync.stdout:
        print(line, end='', flush=True)
        page = re.search('View run ([^ ]+) at (https?://[^ ]+)', line.strip())
        if page:
            pages[page.group(1)] = page.group(2)
left = []
for copy in copies:
    name = os.path.basename(copy)
    if glob.glob(os.path.join(glob.escape(copy), '*.wandb.synced')):
        with open(os.path.join(sent, name), 'w') as file:
            file.write(pages.get(name.split('-', 3)[-1], ''))
    else:
        left.append(name)
shutil.rmtree(work, ignore_errors=True)
sys.exit('not synced: ' + ', '.join(left) if left else 0)
"""
"""What the task runs. It copies the folders, as those of another task are read-only and `wandb sync` writes a marker
next to each run that it has sent. That marker alone says so: with a key that is refused, `wandb sync` ends with 0, too
(0.31). For each run that was sent, the task's outputs get a file in `synced` with the address of its page."""


@dataclass(frozen=True, slots=True)
class RunState:
    """A run, and what became of it: `online`, `offline` (it can be sent), `syncing`, `synced`, or `gone` (it was
    offline, and its files are not in the outputs)."""

    row: TrackerRun
    state: str
    url: str


def list_runs(user: User, task_id: str) -> list[RunState]:
    """Return the runs that the task's script began at W&B, those of rank 0 first."""
    return _list_states(find_task(user, task_id))


def may_sync(found: Iterable[RunState]) -> bool:
    """Return whether there are runs that can be sent, of a task that has ended."""
    return any(one.state == "offline" and one.row.task.state not in ACTIVE_STATES for one in found)


def sync_runs(user: User, task_id: str, environment_id: str = "", secret: str = "") -> Task:
    """Create the task that sends the runs which are offline (member), in one environment: by default the first one of
    the task. `secret`: name of the project's secret with the key. Raises ApiError and ProblemsError."""
    task = find_task(user, task_id, Role.MEMBER)
    if task.state in ACTIVE_STATES:
        raise ApiError(409, "WANDB_TASK_ACTIVE", task=task.pk)
    waiting = _list_waiting(task)
    secret = secret or (task.spec.get("secret_env") or {}).get(KEY_VARIABLE) or KEY_VARIABLE
    if secrets.find_unknown_secrets(task.project_id, {KEY_VARIABLE: secret}):
        raise ApiError(409, "WANDB_KEY_MISSING", "secret", secret=secret, project=task.project.name)
    environment = environment_id or task.nodes.values_list("environment", flat=True).first()
    if not environment:
        raise ApiError(409, "WANDB_ENVIRONMENT_GONE", "environmentId")
    request = _build_request(task, [one.row.folder for one in waiting], environment, secret)

    def attach(sync: Task) -> None:
        Task.objects.select_for_update().get(pk=task.pk)
        if [one.row.folder for one in _list_waiting(task)] != [one.row.folder for one in waiting]:
            raise ApiError(409, "WANDB_SYNC_UNDER_WAY", task=task.pk)
        for one in waiting:
            one.row.sync_task = sync
            one.row.save()

    return submit_request(user, request, attach=attach)


def _list_waiting(task: Task) -> list[RunState]:
    """Return the runs that can be sent. Raises ApiError if there are none."""
    states = _list_states(task)
    waiting = [one for one in states if one.state == "offline"]
    if waiting:
        return waiting
    if any(one.state == "gone" for one in states) and outputs.is_stored(task.project, task.pk):
        raise ApiError(409, "WANDB_OUTPUTS_STORED", task=task.pk)
    if under_way := next((one.row.sync_task_id for one in states if one.state == "syncing"), None):
        raise ApiError(409, "WANDB_SYNC_UNDER_WAY", task=under_way)
    raise ApiError(409, "WANDB_NOTHING_TO_SYNC", task=task.pk)


def _build_request(task: Task, folders: Sequence[str], environment: str, secret: str) -> dict[str, Any]:
    config = task.request.get("distributedConfig") or {}
    variables = {
        name: value
        for name, value in (task.request.get("env") or {}).items()
        if name in _PROXY_VARIABLES or (name.startswith("WANDB_") and name not in _OWN_VARIABLES)
    }
    code = task.spec.get("code") or {}
    packages = {name: code[name] for name in ("snapshot", "requirements") if code.get(name)}
    return {
        **({"code": packages} if code.get("snapshot") else {}),  # wandb may be one of its packages
        "taskName": f"{SYNC_TAG} {task.name}"[:MAX_NAME_LENGTH].strip(),
        "projectId": task.project_id,
        "datasetId": None,
        "datasetVersionId": None,
        "environmentIds": [environment],
        "distributedConfig": {name: config[name] for name in ("python", "runIn") if config.get(name)},
        "entrypoint": {"command": ["python", "-c", SCRIPT, *folders], "processes": "node"},
        "after": [{"task": task.pk, "on": "ended"}],
        "env": variables,
        "secretEnv": {KEY_VARIABLE: secret},
        "tags": [SYNC_TAG],
        "maxRestarts": 0,
        "maxRunSeconds": MAX_SYNC_SECONDS,
        "pulse": "off",
        "onHang": "report",
    }


def _list_states(task: Task) -> list[RunState]:
    rows = list(TrackerRun.objects.filter(task=task).select_related("task", "sync_task"))
    tree = open_outputs(task.pk)
    known = {row.folder for row in rows}
    found = [row for row in _find_offline_runs(task, tree) if row.folder not in known]
    shown = [*rows, *found[: max(0, MAX_RUNS - len(rows))]]
    return [RunState(row, *_find_state(row, tree)) for row in shown]


def _find_offline_runs(task: Task, tree: SafeTree) -> Iterable[TrackerRun]:
    """Yield rows, not stored yet, of the folders in the outputs that look like runs which were offline."""
    with suppress(OSError):
        for entry in tree.list_entries(FOLDER):
            if entry.folder and (name := _OFFLINE_RUN.fullmatch(entry.name)):
                yield TrackerRun(
                    task=task, source=SOURCE, run_id=name[1], folder=entry.path, is_offline=True,
                    attempt=max(1, task.attempt), rank=0, at=datetime.fromtimestamp(entry.at, UTC),
                )  # fmt: skip


def _find_state(row: TrackerRun, tree: SafeTree) -> tuple[str, str]:
    """Return the state of a run, and the address of its page."""
    if not row.is_offline:
        return "online", row.url
    sync = row.sync_task
    if row.synced_at:
        return "synced", row.url
    if sync and (page := find_page(sync, row)) is not None:
        return "synced", page
    if sync and sync.state in ACTIVE_STATES:
        return "syncing", ""
    if not row.folder:
        return "gone", ""
    try:
        names = {entry.name for entry in tree.list_entries(row.folder)}
    except OSError:
        return "gone", ""
    if any(name.endswith(".wandb.synced") for name in names):  # by a person, or the script itself
        return "synced", ""
    return ("offline" if any(name.endswith(".wandb") for name in names) else "gone"), ""
