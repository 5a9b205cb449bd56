"""What the agent backend makes of a plan, and of what its workers say."""

from dataclasses import replace
from itertools import product

import pytest

from fermi import messages
from fermi.engines import agent
from fermi.engines.agent import engine, render, state
from fermi.engines.agent.store import AttemptReports, RankReport
from fermi.engines.check_results import CheckLevel
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Cause, Entrypoint, JobSpec, Node, Phase
from fermi.planning import plugins
from tests.fakes.workers import MemoryStore


def node(name: str, numbers: list[int], **more) -> Node:
    engine = {"workers": [f"{name}-{n}" for n in numbers], **more.pop("engine", {})}
    return Node(f"env-{name}", name, f"host-{name}", gpu_type="A100", gpu_count=len(numbers), engine=engine, **more)


def job(*nodes: Node, **changes) -> JobSpec:
    values = {"attempt": 2, "entrypoint": Entrypoint("train.py", ("--fast",)), **changes}
    return JobSpec("task-x", "pytorch-ddp", nodes, nodes[0].id, **values)


def rendered(spec: JobSpec):
    plan = plugins.get_framework(spec.framework).plan(spec)
    return plugins.get_backend("agent", {"data_dir": "/fermi"}).render(spec, plan)


def test_each_worker_gets_one_order_with_one_rank():
    found = render.build_orders(rendered(job(node("gn7", [0, 1]), node("gn6", [0, 2, 10]))))
    assert [(o.worker, o.rank, o.node_rank, o.node) for o in found] == [
        ("gn7-0", 0, 0, "gn7"), ("gn7-1", 1, 0, "gn7"), ("gn6-0", 2, 1, "gn6"), ("gn6-2", 3, 1, "gn6"),
        ("gn6-10", 4, 1, "gn6"),
    ]  # fmt: skip
    spec = found[3].body["spec"]
    assert spec["name"] == "task-x-2"
    [rank] = spec["ranks"]
    env = {"RANK": "3", "LOCAL_RANK": "1", "ROLE_RANK": "3"}
    assert rank == {"rank": 3, "local_rank": 1, "env": env, "log": "logs/task-x/2/3.log"}
    assert spec["env"]["MASTER_ADDR"] == "host-gn7"
    assert spec["env"]["WORLD_SIZE"] == "5"
    assert len({order.digest for order in found}) == 5


def test_only_the_runner_of_rank_0_checks_its_port():
    found = render.build_orders(rendered(job(node("gn7", [0, 1]), node("gn6", [0]), master_port=29512)))
    assert [order.body["spec"].get("port") for order in found] == [29512, None, None]


def test_a_stalled_rank_reports_since_when():
    [rank] = state.build_observation(AttemptReports(False, [replace(RUNNING, still_since=12.5)])).ranks
    assert rank.still_since == 12.5


def test_a_preflight_test_is_one_process_on_the_first_worker_of_each_node():
    spec = replace(job(node("gn7", [0, 1]), node("gn6", [2, 10]), entrypoint=None), framework="preflight")
    plan = plugins.get_planner("preflight").plan(spec)
    found = render.build_orders(plugins.get_backend("agent", {"data_dir": "/fermi"}).render(spec, plan))
    assert [(o.worker, o.rank, o.node_rank) for o in found] == [("gn7-0", 0, 0), ("gn6-2", 1, 1)]


def test_the_same_plan_has_the_same_digests():
    spec = job(node("gn6", [0]))
    assert render.build_orders(rendered(spec)) == render.build_orders(rendered(spec))
    other = render.build_orders(rendered(replace(spec, env={"A": "1"})))
    assert other[0].digest != render.build_orders(rendered(spec))[0].digest


def test_gpus_are_ordered_so_that_the_local_rank_selects_the_workers_own():
    def visible(*of: Node, **changes) -> str | None:
        return render.build_orders(rendered(job(*of, **changes)))[0].body["spec"]["env"].get("CUDA_VISIBLE_DEVICES")

    assert visible(node("gn6", [2, 3])) == "2,3"
    assert visible(node("gn6", [0, 1], engine={"gpus": [4, 6]})) == "4,6"
    assert visible(node("gn6", [2, 3]), env={"CUDA_VISIBLE_DEVICES": "7"}) == "7"
    assert visible(node("gn6", [2, 3], emulated=True)) == ""


def test_the_head_address_is_reachable_by_the_others():
    assert node("gn6", [0], engine={"address": "10.0.0.6"}).address == "10.0.0.6"
    assert node("gn6", [0]).address == "host-gn6"
    assert Node("e", "gn6", ip="10.0.0.7").address == "10.0.0.7"
    assert Node("e", "gn6").address == "gn6"


def test_a_process_for_a_whole_node_is_refused_where_each_worker_starts_one():
    backend = plugins.get_backend("agent", {"data_dir": "/fermi"})
    launches = Entrypoint(command=("bash", "run.sh"), processes="node")
    [problem] = backend.problems(job(node("gn7", [0, 1]), node("gn6", [0]), entrypoint=launches))
    assert (problem.field, problem.code, problem.params) == (
        "entrypoint.processes", "WORKERS_START_RANKS", {"environment": "gn7"},
    )  # fmt: skip
    message, hint = messages.render_text(problem.code, "en", **problem.params)
    assert message.startswith("The workers of gn7 start one process per GPU each")
    assert "paste the launch command" in hint


def test_values_known_only_to_the_host_stay_open():
    spec = render.build_orders(rendered(job(node("gn6", [0]))))[0].body["spec"]
    assert spec["command"][0] == [{"late": "python"}]
    assert spec["env"]["FERMI_DDP_CONFIG"] == [{"late": "files directory"}, "/pytorch_ddp_config.yaml"]
    assert "cwd" not in spec


def test_an_environment_without_its_workers_is_refused():
    backend = plugins.get_backend("agent", {"data_dir": "/fermi"})
    short = replace(node("gn6", [0, 1]), engine={"workers": ["gn6-0"]})
    [problem] = backend.problems(job(short))
    assert (problem.field, problem.code) == ("environmentIds.0", "WORKERS_DIFFER")
    assert problem.params == {"environment": "gn6", "found": 1, "expected": 2}
    assert backend.problems(job(node("gn6", [0, 1]))) == []


def report(rank: int = 0, **changes) -> RankReport:
    return RankReport(f"gn6-{rank}", rank, 0, "gn6", **changes)


ORDERED = report()
RUNNING = report(state="running", pid=7, left=True)
DONE = report(state="exited", pid=7, exit_code=0, left=False)
SHIPPING = replace(DONE, left=True)
KILLED = report(state="exited", pid=7, exit_code=-9, ended_at=1.0, left=False)
BROKEN = report(state="exited", pid=7, exit_code=1, ended_at=100.0, left=False)
NEVER = report(state="exited", left=False)
PORT = replace(NEVER, cause={"code": "MASTER_PORT_TAKEN", "port": 29500, "holder": "pid 7 (nc)"})
FULL = replace(BROKEN, cause={"code": "DISK_FULL", "path": "/data", "free": 0, "total": 1 << 30, "rank": 1})
LOST = replace(RUNNING, status="lost", heard_at=99.0)


@pytest.mark.parametrize(
    ("reports", "stopped", "phase", "left", "cause"),
    [
        ([], False, Phase.ABSENT, None, None),
        ([], True, Phase.ABSENT, False, None),
        ([ORDERED], False, Phase.STARTING, True, None),
        ([ORDERED], True, Phase.STARTING, True, None),
        ([ORDERED, RUNNING], False, Phase.STARTING, True, None),
        ([RUNNING, replace(RUNNING, status="suspect")], False, Phase.RUNNING, True, None),
        ([RUNNING, DONE], False, Phase.RUNNING, True, None),
        ([DONE, SHIPPING], False, Phase.RUNNING, True, None),
        ([DONE, DONE], False, Phase.SUCCEEDED, False, None),
        ([RUNNING, KILLED], False, Phase.FAILED, True, "RANK_KILLED"),
        ([LOST, KILLED], False, Phase.FAILED, None, "RANK_KILLED"),
        ([LOST, BROKEN], True, Phase.FAILED, False, "WORKER_LOST"),
        ([replace(LOST, status="suspect"), BROKEN], False, Phase.FAILED, True, "RANK_FAILED"),
        ([replace(LOST, heard_at=160.0), BROKEN], True, Phase.FAILED, False, "RANK_FAILED"),
        ([NEVER], False, Phase.FAILED, False, "RUNNER_LOST"),
        ([NEVER], True, Phase.FAILED, False, None),
        (
            [NEVER, replace(KILLED, stop_requested=True)],
            False,
            Phase.FAILED,
            False,
            "RUNNER_LOST",
        ),  # its agent ends the siblings
        ([NEVER, BROKEN], False, Phase.FAILED, False, "RUNNER_LOST"),
        ([NEVER, KILLED], False, Phase.FAILED, False, "RANK_KILLED"),
        ([PORT], False, Phase.FAILED, False, "MASTER_PORT_TAKEN"),
        ([PORT, BROKEN], False, Phase.FAILED, False, "MASTER_PORT_TAKEN"),
        ([RUNNING, FULL], False, Phase.FAILED, True, "DISK_FULL"),
        ([replace(NEVER, cause={"code": "COMPLETED"})], False, Phase.FAILED, False, "RUNNER_LOST"),
        ([LOST, RUNNING], False, Phase.FAILED, True, "WORKER_LOST"),
        ([LOST, DONE], False, Phase.FAILED, None, "WORKER_LOST"),
        ([LOST, DONE], True, Phase.FAILED, False, "WORKER_LOST"),
        ([LOST, RUNNING], True, Phase.FAILED, True, "WORKER_LOST"),
        ([replace(DONE, status="lost"), DONE], False, Phase.SUCCEEDED, False, None),
        ([replace(SHIPPING, status="lost"), DONE], False, Phase.SUCCEEDED, None, None),
        ([replace(SHIPPING, status="lost"), DONE], True, Phase.SUCCEEDED, False, None),
    ],
)
def test_worker_reports_become_an_observation(reports, stopped, phase, left, cause):
    placed = [replace(one, rank=rank, worker=f"gn6-{rank}") for rank, one in enumerate(reports)]
    seen = state.build_observation(AttemptReports(stopped, tuple(reversed(placed))))
    assert (seen.phase, seen.left, seen.cause and seen.cause.code) == (phase, left, cause)
    assert [rank.rank for rank in seen.ranks] == list(range(len(reports)))


def test_an_attempt_is_not_over_while_a_worker_may_still_run_it():
    """Of every pair of reports: `left` is False only when no worker that is heard says, or could say, otherwise."""
    for pair in product((ORDERED, RUNNING, DONE, SHIPPING, KILLED, NEVER, LOST), repeat=2):
        for stopped in (False, True):
            if state.build_observation(AttemptReports(stopped, pair)).left is False:
                assert all(one.left is False or (one.status == "lost" and stopped) for one in pair)


def test_an_unknown_attempt_is_absent_and_may_still_start():
    assert state.build_observation(None).phase is Phase.ABSENT
    assert state.build_observation(None).left is None


def test_the_check_lists_workers(monkeypatch):
    check, store = plugins.get_check("agent"), MemoryStore()
    monkeypatch.setattr(engine, "store", None)
    assert [one.code for one in check.findings({})] == ["WORKER_STORE_MISSING"]
    with pytest.raises(BackendError):
        plugins.get_backend("agent", {}).observe([])
    monkeypatch.setattr(engine, "store", store)
    agent.set_store(store)
    assert [one.code for one in check.findings({})] == ["WORKERS_NONE"]
    store.register("gn6-0")
    store.register("gn6-1")
    store.known["gn6-1"].status = "lost"
    found = check.findings({})
    assert [(one.level, one.code) for one in found] == [
        (CheckLevel.PASS, "WORKERS_ONLINE"), (CheckLevel.WARN, "WORKERS_AWAY"),
    ]  # fmt: skip
    assert found[1].params == {"workers": "gn6-1"}


def test_preparation_is_the_reason_why_an_attempt_has_not_started():
    unpacking = report(state="starting", left=True, doing={"code": "CODE_UNPACKING"})
    words = {"file": "requirements.txt", "said": "Collecting numpy"}
    preparing = {"code": "CODE_PACKAGES_PREPARING", **words}
    busy = [report(rank, state="starting", left=True, doing=preparing) for rank in (1, 2)]
    other = replace(busy[0], rank=3, node="gn7")
    seen = state.build_observation(AttemptReports(False, (unpacking, *busy, other)))
    assert (seen.phase, seen.waiting) == (
        Phase.STARTING,
        Cause("CODE_PACKAGES_PREPARING", {**words, "node": "gn6, gn7"}),
    )
    assert state.build_observation(AttemptReports(True, (unpacking, RUNNING))).waiting is None, "it is to end"
    assert state.build_observation(AttemptReports(False, (RUNNING, DONE))).waiting is None


def test_a_failed_package_preparation_names_the_host():
    said = {"code": "CODE_PACKAGES_FAILED", "file": "requirements.txt", "why": "No matching distribution found"}
    failed = replace(NEVER, node="gn7", node_rank=1, rank=1, cause=said)
    cause = state.build_observation(AttemptReports(False, (RUNNING, failed))).cause
    expected = {"file": said["file"], "why": said["why"], "node": "gn7", "nodeRank": 1}
    assert cause == Cause("CODE_PACKAGES_FAILED", expected)
