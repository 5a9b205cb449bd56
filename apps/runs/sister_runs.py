"""Finds runs that differ from another one in the seed alone, and reads curves to compare."""

from collections.abc import Iterable, Sequence

from apps.runs.run_facts import list_settings, read_parameters
from apps.training.public import AttemptFacts, CurveReader, Task
from fermi.jobs.spec import JobSpec
from fermi.metrics.ratings import SCORES
from fermi.runs.differences import are_equal, is_seed
from fermi.runs.divergence import MAX_POINTS, Curve

MAX_CANDIDATES, MAX_SISTERS = 200, 8
MAX_CURVES = 6


def find_sisters(task: Task, others: Iterable[str]) -> list[Task]:
    """Return the newest runs of the task's project that have its code, data, model, size, settings and parameters but
    for the seed; none where its code is not known. `others`: runs that are left out. Only the newest MAX_CANDIDATES of
    the project with the same data are compared."""
    code = find_code(task)
    if not code:
        return []
    rows = Task.trainings.filter(
        project=task.project_id, framework=task.framework, dataset_version=task.dataset_version_id,
        model=task.model_id, world_size=task.world_size,
    ).exclude(pk__in=[task.pk, *others])  # fmt: skip
    job = JobSpec.from_json(task.spec)
    mine = _describe(task.pk, job)
    found: list[Task] = []
    for candidate in rows.order_by("-created_at").only("pk", "spec", "state")[:MAX_CANDIDATES]:
        other = JobSpec.from_json(candidate.spec)
        alike = (other.train_data, other.code is None) == (job.train_data, job.code is None)
        if alike and find_code(candidate) == code and _are_alike(mine, _describe(candidate.pk, other)):
            found.append(candidate)
            if len(found) >= MAX_SISTERS:
                break
    return found


def find_code(task: Task) -> str:
    """Return what identifies a run's code: its snapshot, or the hash of the script that its node reported; empty where
    neither is known."""
    if snapshot := (task.spec.get("code") or {}).get("snapshot"):
        return str(snapshot)
    rows = AttemptFacts.objects.filter(task=task.pk, node_rank=0).order_by("-attempt")
    values = rows.values_list("values", flat=True).first() or {}
    return str((values.get("script") or {}).get("sha256", ""))


def _describe(task_id: str, job: JobSpec) -> dict[str, str]:
    parameters = {name: value for name, value in read_parameters(task_id, job).items() if not is_seed(name)}
    return {**parameters, **{f"setting {name}": value for name, value in list_settings(job).items()}}


def _are_alike(left: dict[str, str], right: dict[str, str]) -> bool:
    return left.keys() == right.keys() and all(are_equal(value, right[name]) for name, value in left.items())


def read_curves(reader: CurveReader, names: Sequence[str]) -> dict[str, dict[str, Curve]]:
    """Return the curves with these names of a reader's runs, by run and name: each as one line over all attempts. Of a
    curve of more than a million points each is the average of some."""
    found: dict[str, dict[str, Curve]] = {}
    for curve in reader.read(names, MAX_POINTS):
        cells = curve.cells
        found.setdefault(curve.task_id, {})[curve.name] = Curve(cells.first_steps, cells.sums / cells.counts)
    return found


def choose_names(left: Iterable[str], right: Iterable[str]) -> list[str]:
    """Return which curves of two runs are compared: losses and scores that both have, losses first; any others only
    where there are none, as learning rates and speeds explain no result."""
    common = sorted(set(left) & set(right))
    ranked = [(_rank_name(name), name) for name in common]
    rated = [name for rank, name in sorted(ranked) if rank < len(_RANKS)]
    return (rated or common)[:MAX_CURVES]


_RANKS = ("loss", "score")


def _rank_name(name: str) -> int:
    plain = name.lower().replace("/", "_").replace("-", "_").replace(".", "_")
    if "loss" in plain or "perplexity" in plain:
        return 0
    return 1 if any(plain == score or plain.endswith(f"_{score}") for score in SCORES) else len(_RANKS)
