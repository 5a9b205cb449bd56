"""Whether a gang hangs, and because of whom, from what runners say of ranks that do not advance."""

import pytest

from fermi import messages
from fermi.diagnosis import Level, hangs
from fermi.diagnosis.hangs import GangLayout, detect_hang
from fermi.jobs.spec import RankStatus

SITE = GangLayout(["head-env", "other-env"], {"10.0.0.1": 0, "10.0.0.2": 1})
NOW = 1_700_000_100.0


def stalled(into="", **more):
    said = {
        "since": NOW - 12, "looked_at": NOW, "looks": 2, "still": True, "phase": "running", "step": 60, "in": into,
        "at": "train.py:120 in main" if into else "data.py:88 in load_batch", "state": "S", "waits": "futex_wait",
        "stack": ["all_reduce (torch/x.py:1)", "main (train.py:120)"] if into else ["load_batch (data.py:88)"],
        "op": {"seq": 70, "group": "0", "sizes": [[7]]} if into else None, "links": [], "moves": False, "timed": False,
        "locked": not into, "stopped": None,
    }  # fmt: skip
    return {**said, **more}


def rank(number, said, **more):
    return RankStatus(number, number // 2, "running", 100 + number, stalled=said, **more)


def gang(*said):
    return [rank(number, one) for number, one in enumerate(said)]


def render_verdict(verdict):
    finding = verdict.finding
    for lang in ("en", "zh"):
        for evidence in finding.evidence:
            messages.render_text(evidence.code, lang, **evidence.params)
        messages.render_text(finding.code, lang, **finding.params)
    return messages.render_text(finding.code, "en", **finding.params)[0]


def test_the_rank_that_is_elsewhere_is_named_with_node_and_line():
    verdict = detect_hang(
        gang(stalled("all_reduce"), stalled("all_reduce"), stalled("all_reduce"), stalled()), SITE, NOW
    )
    assert verdict.certain
    assert verdict.finding.code == hangs.HANG
    assert render_verdict(verdict) == (
        "3 ranks are waiting in all_reduce (train.py:120 in main); "
        "rank 3 on other-env has been in data.py:88 in load_batch for 12 s."
    )
    assert [(where.rank, where.node_rank, where.node) for where in verdict.finding.where] == [(3, 1, "other-env")]
    first = verdict.finding.evidence[0]
    assert (first.params["ranks"], list(first.lines)) == ("3", ["load_batch (data.py:88)"])


def test_while_a_rank_advances_a_gang_is_only_suspected_to_hang():
    ranks = gang(stalled("all_reduce"), None)
    assert detect_hang(ranks, SITE, NOW) is None
    for later, level in ((48, Level.INFO), (3600, Level.WARN)):
        verdict = detect_hang(ranks, SITE, NOW + later)
        assert (verdict.finding.code, verdict.certain, verdict.ranks) == (hangs.SUSPECTED, False, (1,))
        assert verdict.finding.level is level
        render_verdict(verdict)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (stalled(still=False, cpu=1.0), "computes"),
        (stalled(still=False, state="D"), "disk"),
        (stalled(locked=False, waits="hrtimer_nanosleep"), "sleeps"),
        (stalled(locked=False, timed=True), "sleeps"),
        (stalled(moves=True), "moves"),
        (stalled(locked=False, waits="do_wait"), "child"),
        (stalled(locked=False, waits="wait_woken"), "network"),
    ],
)
def test_a_suspicion_becomes_a_warning_when_it_lasts(said, why):
    verdict = detect_hang(gang(stalled("all_reduce"), said), SITE, NOW)
    assert (verdict.finding.code, verdict.finding.level, verdict.certain) == (hangs.SUSPECTED, Level.INFO, False)
    assert verdict.finding.params["why"] == why
    render_verdict(verdict)
    assert (
        detect_hang(gang(stalled("all_reduce"), said), GangLayout(patience=1800), NOW + 600).finding.level is Level.WARN
    )
    later = detect_hang(gang(stalled("all_reduce"), said), SITE, NOW + 86_400)
    assert later.certain is (why in ("child", "network")), "what makes progress never hangs"


def test_a_launcher_with_busy_children_does_not_hang():
    launchers = [stalled(still=False, children=True), stalled(still=False, children=True)]
    for site in (SITE, GangLayout(patient=True)):
        for later in (0, 86_400):
            verdict = detect_hang(gang(*launchers), site, NOW + later)
            assert (verdict.finding.level, verdict.certain) == (Level.INFO, False)
            assert "processes that it started; they are still working" in render_verdict(verdict)
    computes = detect_hang(gang(stalled(still=False, cpu=1.0), launchers[0]), SITE, NOW)
    assert computes.finding.params["why"] == "computes"


@pytest.mark.parametrize(
    "ranks",
    [
        gang(stalled("all_reduce"), stalled(locked=False, waits="pipe_read")),
        gang(stalled("barrier"), stalled("barrier")),
    ],
)
def test_a_likely_hang_ends_the_attempt_only_after_the_timeout(ranks):
    site = GangLayout(SITE.names, patience=hangs.compute_certain_seconds([40, 900]))
    verdict = detect_hang(ranks, site, NOW)
    assert (verdict.finding.code, verdict.finding.level, verdict.certain) == (hangs.HANG, Level.WARN, False)
    render_verdict(verdict)
    assert not detect_hang(ranks, site, NOW + 2600).certain
    assert detect_hang(ranks, site, NOW + 2700).certain


def test_the_hang_timeout_is_ten_minutes_or_three_times_the_longest_wait():
    assert [hangs.compute_certain_seconds(past) for past in ([], [100], [30, 500])] == [600, 600, 1500]


def test_a_self_deadlock_and_an_ended_rank_are_proofs():
    assert detect_hang(gang(stalled("all_reduce"), stalled()), SITE, NOW).certain
    assert not detect_hang(gang(stalled("all_reduce"), stalled(), stalled(locked=False)), SITE, NOW).certain
    ended = RankStatus(1, 0, "exited", 101, 0, NOW - 19)
    assert detect_hang([ended, rank(0, stalled("all_reduce"))], SITE, NOW).certain
    of_some = {"op": {"seq": 70, "group": "1", "sizes": [[7]]}}
    assert not detect_hang([ended, rank(0, stalled("all_reduce", **of_some))], SITE, NOW).certain


@pytest.mark.parametrize(
    ("by", "says"),
    [
        ({"pid": 712, "signal": "SIGSTOP", "tracer": ""}, "Rank 1 on head-env has been stopped by SIGSTOP for 12 s."),
        ({"pid": 712, "signal": "", "tracer": "gdb (99)"}, "for 12 s by gdb (99), which is tracing it."),
        ({"pid": None, "signal": None, "tracer": None}, "Rank 1 on head-env has been stopped for 12 s."),
    ],
)
def test_a_stopped_rank_is_named_at_once_and_ends_nothing(by, says):
    ranks = gang(stalled("all_reduce"), stalled(looks=1, still=False, state="T", stopped=by), None)
    verdict = detect_hang(ranks, SITE, NOW)
    assert (verdict.finding.code, verdict.finding.level, verdict.ranks) == (hangs.STOPPED, Level.FAIL, (1,))
    assert render_verdict(verdict).endswith(says)
    assert not verdict.certain
    action = verdict.finding.actions[0]
    pid = by["pid"] or 101
    assert (
        messages.render_text(f"ACTION_{action.code}", "en", **action.params)[0]
        == f"Resume the process: `kill -CONT {pid}` on head-env"
    )
    assert not detect_hang(ranks, GangLayout(SITE.names, patient=True), NOW + 86_400).certain


def test_a_collective_that_may_wait_for_a_kernel_is_likely_and_not_certain():
    """NCCL's kernel that waits for its peers and the kernel before it look the same from outside."""
    patient = GangLayout(SITE.names, SITE.addresses, patient=True)
    ranks = gang(stalled("all_reduce", gpu=True), stalled("all_reduce"))
    for site, later in ((patient, 0), (SITE, 86_400)):
        verdict = detect_hang(ranks, site, NOW + later)
        assert (verdict.finding.code, verdict.finding.level, verdict.certain) == (hangs.HANG, Level.WARN, False)
        assert detect_hang(gang(stalled("all_reduce"), stalled("all_reduce")), site, NOW + later).certain
    elsewhere = detect_hang(gang(stalled("all_reduce", gpu=True), stalled()), patient, NOW)
    assert (elsewhere.certain, elsewhere.ranks) == (True, (1,))
    other = stalled("all_gather", gpu=True)
    assert detect_hang(gang(stalled("all_reduce", gpu=True), other), SITE, NOW).finding.code == hangs.MISMATCH


def test_a_rank_ahead_of_a_broadcast_that_waits_for_a_kernel_is_no_mismatch():
    def ahead(**more):
        return stalled("all_reduce", op={"seq": 80, "group": "nccl 0", "sizes": [[7]]}, **more)

    def behind(**more):
        return stalled("broadcast", op={"seq": 70, "group": "nccl 0", "sizes": [[7]]}, **more)

    assert detect_hang(gang(ahead(gpu=True), behind(gpu=True)), SITE, NOW).finding.code == hangs.HANG
    assert detect_hang(gang(ahead(), behind()), SITE, NOW).finding.code == hangs.MISMATCH
    last = [{"seq": 70, "op": "all_gather", "sizes": [[7]], "dtype": "Float", "state": "completed", "group": "nccl 0"}]
    passed = ahead(gpu=True, flight={"groups": {}, "last": last})
    assert detect_hang(gang(passed, behind(gpu=True)), SITE, NOW).finding.code == hangs.MISMATCH


def test_a_single_observation_is_not_enough():
    assert (
        detect_hang(gang(stalled("all_reduce", looks=1, still=False), stalled(looks=1, still=False)), SITE, NOW) is None
    )


def test_before_the_first_step_a_hang_is_only_suspected_unless_a_timeout_is_set():
    ranks = gang(stalled(step=None), stalled(step=None))
    assert detect_hang(ranks, SITE, NOW).finding.code == hangs.SUSPECTED
    render_verdict(detect_hang(ranks, SITE, NOW))
    assert detect_hang(ranks, GangLayout(SITE.names, SITE.addresses, patient=True), NOW).certain


@pytest.mark.parametrize(
    ("other", "apart"),
    [
        ({"op": {"seq": 70, "group": "0", "sizes": [[4, 8]]}}, "all_reduce [4, 8]"),
        ({"in": "all_gather", "op": {"seq": 70, "group": "0", "sizes": [[3]]}}, "all_gather [3]"),
        ({"op": {"seq": 69, "group": "0", "sizes": [[7]]}}, "all_reduce [7]"),
    ],
)
def test_mismatched_collectives_are_told_apart(other, apart):
    ranks = gang(stalled("all_reduce"), stalled("all_reduce", **other), stalled("all_reduce"))
    verdict = detect_hang(ranks, SITE, NOW)
    assert (verdict.finding.code, verdict.certain, verdict.ranks) == (hangs.MISMATCH, True, (1,))
    assert verdict.finding.params["found"] == apart
    assert verdict.finding.params["op"] == "all_reduce [7]"
    render_verdict(verdict)


def test_the_pipeline_stage_that_is_elsewhere_is_named():
    first = stalled("recv 0<-1", op={"seq": 12, "group": "0", "sizes": [[4]]})
    second = stalled("send 1->2", op={"seq": 9, "group": "0", "sizes": [[8]]})
    verdict = detect_hang(gang(first, second, stalled()), SITE, NOW)
    assert (verdict.finding.code, verdict.ranks) == (hangs.HANG, (2,))
    assert detect_hang(gang(first, second), SITE, NOW).finding.code == hangs.HANG


def test_a_broadcast_root_that_is_ahead_is_no_mismatch():
    ahead = stalled("all_reduce", op={"seq": 71, "group": "0", "sizes": [[7]]})
    behind = stalled("broadcast")
    verdict = detect_hang(gang(ahead, behind, stalled()), SITE, NOW)
    assert (verdict.finding.code, verdict.ranks) == (hangs.HANG, (2,))
    assert detect_hang(gang(ahead, behind, behind), SITE, NOW).finding.code == hangs.MISMATCH
    other = stalled("all_reduce", op={"seq": 71, "group": "0", "sizes": [[4, 8]]})
    assert detect_hang(gang(ahead, other, stalled()), SITE, NOW).finding.code == hangs.MISMATCH


@pytest.mark.parametrize("group", ["1", "nccl 3"])
def test_groups_are_not_merged_by_equal_numbers(group):
    own = [stalled("all_reduce", op={"seq": seq, "group": group, "sizes": [[7]]}) for seq in (40, 40, 38, 38)]
    assert detect_hang(gang(*own), SITE, NOW).finding.code == hangs.HANG


def test_different_tensor_sizes_are_no_mismatch_where_allowed():
    gathers = [stalled("all_gather", op={"seq": 9, "group": "0", "sizes": [[size]]}) for size in (3, 4)]
    verdict = detect_hang(gang(*gathers), SITE, NOW)
    assert verdict.finding.code == hangs.HANG
    assert render_verdict(verdict).startswith("All 2 ranks have been waiting in all_gather")


def test_a_dead_connection_names_both_nodes():
    dead = {"peer": "10.0.0.2", "port": 4711, "unacked": 2048, "retries": 5, "seconds": 9.0}
    ranks = gang(stalled("all_reduce", links=[dead]), stalled("all_reduce"), stalled("all_reduce"))
    verdict = detect_hang(ranks, SITE, NOW)
    assert (verdict.finding.code, verdict.certain) == (hangs.CUT, True)
    assert [where.node for where in verdict.finding.where] == ["head-env", "other-env"]
    assert "head-env and other-env" in render_verdict(verdict)
    works = stalled("all_reduce", still=False, links=[dead])
    assert detect_hang(gang(works, stalled("all_reduce")), SITE, NOW).finding.code != hangs.CUT, "it may yet go on"
    busy = {**dead, "retries": 0}
    assert (
        detect_hang(gang(stalled("all_reduce", links=[busy]), stalled("all_reduce")), SITE, NOW).finding.code
        == hangs.HANG
    )


def test_a_connection_with_enough_retransmissions_is_dead():
    link = {"peer": "10.0.0.2", "port": 4711, "unacked": 9000, "retries": 5, "seconds": 2.8}
    ranks = [rank(0, stalled("all_reduce", links=[link])), rank(2, stalled("all_reduce"))]
    assert detect_hang(ranks, SITE, NOW).finding.code == hangs.CUT
    few = stalled("all_reduce", links=[{**link, "retries": 3}])
    assert detect_hang([rank(0, few), rank(2, stalled("all_reduce"))], SITE, NOW).finding.code == hangs.HANG


def test_a_rank_waiting_for_rendezvous_is_not_blamed():
    stack = ["_create_c10d_store (torch/distributed/rendezvous.py:199)", "init_process_group (torch/d.py:1892)"]
    meets = stalled(stack=stack, at="train.py:9", waits="hrtimer_nanosleep", step=None)
    ranks = gang(meets, stalled(step=None))
    verdict = detect_hang(ranks, GangLayout(SITE.names, SITE.addresses, patient=True), NOW)
    assert (verdict.finding.code, verdict.ranks) == (hangs.HANG, (1,))
    assert "init_process_group" in render_verdict(verdict)
    assert detect_hang(ranks, SITE, NOW).finding.code == hangs.SUSPECTED


def test_a_rank_that_does_not_exit_fails_the_task_only_if_it_is_rank_0():
    ended = [RankStatus(0, 0, "exited", 100, 0, NOW - 20), RankStatus(1, 0, "exited", 101, 0, NOW - 19)]
    verdict = detect_hang([*ended, rank(2, stalled())], SITE, NOW)
    assert (verdict.finding.code, verdict.certain, verdict.ranks) == (hangs.LEFT, True, (2,))
    render_verdict(verdict)
    assert detect_hang([*ended, rank(2, stalled(still=False))], SITE, NOW).finding.code == hangs.SUSPECTED
    first = [RankStatus(1, 0, "exited", 101, 0, NOW - 19), rank(0, stalled())]
    assert detect_hang(first, SITE, NOW).finding.code == hangs.HANG


def test_a_failed_rank_is_not_a_hang():
    assert detect_hang([RankStatus(0, 0, "exited", 1, 1, NOW), rank(1, stalled("all_reduce"))], SITE, NOW) is None


def test_a_malformed_stall_report_is_ignored():
    nothing = dict.fromkeys(stalled())
    assert detect_hang(gang(nothing, nothing), SITE, NOW) is None
    half = {**nothing, "still": True, "looks": 3}
    render_verdict(detect_hang(gang({**half, "in": "barrier"}, half), SITE, NOW))
