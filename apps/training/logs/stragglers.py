"""Monitors a running attempt's ranks: whether they hold each other up, have become slower, recompile again and again or
leave their GPUs idle, and which of their files cannot be collected. The engine is asked at intervals, and changes are
stored as findings."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime

from apps.training.core import findings
from apps.training.core.engine_access import get_backend
from apps.training.core.findings import record_uncollected_files
from apps.training.logs import poll_interval
from apps.training.models import Task
from apps.training.states import TaskKind
from fermi.diagnosis import recompiles, stragglers, unused_gpus, world_sizes
from fermi.jobs.ranks import place_nodes
from fermi.jobs.spec import Handle, JobSpec, Observation, Phase, RankProgress

MIN_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS = 4.0, 60.0  # seconds between two checks, at least and at most
URGENT_INTERVAL_SECONDS = 1.0  # if the log reader waits for a progress report
MAX_TIME_SHARE = 0.02
"""Largest share of its time that the watcher spends on one attempt's progress reports."""


class RankMonitor:
    """Monitor of one running attempt. Its history is lost with the watcher, and begins anew then. `pulses`: the ranks'
    progress at the newest check; a new object after each."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._history, self._compiled, self._unused = (
            stragglers.StepHistory(),
            recompiles.RecompileHistory(),
            unused_gpus.UnusedGpuHistory(),
        )
        self._due = self._looked = 0.0
        self.pulses: Mapping[int, RankProgress] = {}
        self._compares, self._met = True, False
        self._places: dict[int, stragglers.RankLocation] | None = None
        self._with_gpus: dict[int, stragglers.RankLocation] = {}

    def check_ranks(self, moment: float, observation: Observation | None, *, soon: bool = False) -> None:
        """Check the ranks if that is due. `moment`: monotonic seconds; `observation`: the attempt's observation;
        `soon`: the caller waits for the progress reports."""
        due = min(self._due, self._looked + URGENT_INTERVAL_SECONDS) if soon else self._due
        if moment < due or observation is None or observation.phase is not Phase.RUNNING:
            return
        began = time.monotonic()
        self._judge()
        self._looked = moment
        self._due = moment + max(
            MIN_INTERVAL_SECONDS,
            poll_interval.compute_pause(time.monotonic() - began, MAX_TIME_SHARE, MAX_INTERVAL_SECONDS),
        )

    def _judge(self) -> None:
        if self._places is None:
            self._places = self._find_places()
        task = self._task
        record_uncollected_files(task, self._handle.attempt)
        if not self._places:
            return
        pulses = self.pulses = get_backend(task.cluster).pulses(self._handle)
        moment = datetime.now(UTC).timestamp()
        told = [
            recompiles.detect_recompiles(self._compiled, pulses, self._places, moment),
            unused_gpus.detect_unused_gpus(self._unused, pulses, self._with_gpus, moment),
        ]
        if self._compares:
            told.append(stragglers.detect_stragglers(self._history, pulses, self._places, moment))
        planned = len(self._places)
        joined = {rank: one.joined_as for rank, one in pulses.items() if one.world_size in (None, planned)}
        if not self._met and (
            wrong := world_sizes.find_local_rank_as_rank(joined, self._places)
            or world_sizes.find_differing_world_size(pulses, self._places)
            or world_sizes.find_separate_nodes(pulses, self._places)
        ):
            self._met = True
            told.insert(0, stragglers.FindingChanges([wrong]))
        for news in told:
            if news.findings:
                findings.record_findings(self._handle.task_id, self._handle.attempt, news.findings)
            for code in news.resolved:
                findings.resolve_findings(self._handle.task_id, self._handle.attempt, code)

    def _find_places(self) -> dict[int, stragglers.RankLocation]:
        """Return the node of each rank; empty where nothing can be judged, without a probe. Of a pipeline's stages one
        is always the slowest, so its ranks are not compared."""
        self._task = Task.objects.select_related("cluster").get(pk=self._handle.task_id)
        job = JobSpec.from_json(self._task.spec)
        piped = int(job.strategy.get("pipelineParallel") or 1) > 1
        self._compares = not piped
        if not job.pulse or self._task.kind != TaskKind.TRAINING:
            return {}
        placed = place_nodes(job.nodes, job.master)
        found = {rank: stragglers.RankLocation(at.node_rank, at.node.name) for at in placed for rank in at.ranks}
        self._with_gpus = {rank: found[rank] for at in placed if at.node.has_cuda for rank in at.ranks}
        return found
