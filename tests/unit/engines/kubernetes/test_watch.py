"""One list and one watch per kind, whatever happens to the connection."""

import os
import threading
import time
import traceback

import pytest

from fermi.engines.kubernetes import client, engine, watch
from fermi.jobs.spec import Phase
from tests.fakes.kubernetes import Exits, Sleeps
from tests.polling import until
from tests.unit.engines.kubernetes.conftest import POD, job, observe_one, submit, until_seen


def running(lab, backend):
    lab.cluster.script(POD, Sleeps())
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    return one


def lists(lab) -> int:
    return len(lab.cluster.calls("list", "pods"))


def test_a_broken_watch_resumes(lab, backend):
    one = running(lab, backend)
    before = lists(lab)
    lab.cluster.break_connections()
    lab.cluster.evict(lab.cluster.pods(POD)[0])
    until_seen(backend, one, lambda seen: seen.phase is Phase.FAILED)
    assert lists(lab) == before


def test_an_expired_version_causes_a_new_list(lab, backend):
    one = running(lab, backend)
    before = lists(lab)
    lab.cluster.faults.hang("watch", "*", times=None)
    lab.cluster.break_connections()
    lab.cluster.evict(lab.cluster.pods(POD)[0])
    until(lambda: lab.cluster.pods(POD)[0]["status"]["phase"] == "Failed")
    lab.cluster.compact()
    lab.cluster.faults.clear()
    lab.cluster.break_connections()
    until_seen(backend, one, lambda seen: seen.phase is Phase.FAILED)
    assert lists(lab) > before


def test_objects_deleted_during_an_outage_disappear_with_the_list(lab, backend):
    one = running(lab, backend)
    other = lab.backend()
    lab.cluster.faults.hang("watch", "*", times=None)
    lab.cluster.break_connections()
    lab.cluster.compact()
    until(lambda: (other.delete_attempt(one), not lab.cluster.pods(POD))[1], what="deleted")
    lab.cluster.faults.clear()
    lab.cluster.break_connections()
    until_seen(backend, one, lambda seen: seen.phase is Phase.ABSENT)


def test_an_event_cut_in_the_middle_is_read_again(lab, backend):
    lab.cluster.faults.cut_watch("pods", times=3)
    one = running(lab, backend)
    assert observe_one(backend, one).phase is Phase.RUNNING


def test_a_change_is_published_at_once_and_once_more(lab, backend):
    lab.watched(backend)
    lab.cluster.script(POD, Exits(0, after=0.2))
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.SUCCEEDED)
    told = len(lab.changes)
    until(lambda: len(lab.changes) > told)
    assert set(lab.changes) == {one.name}
    time.sleep(3 * engine.REPEAT_SECONDS)
    quiet = len(lab.changes)
    time.sleep(3 * engine.REPEAT_SECONDS)
    assert len(lab.changes) == quiet


def test_a_forked_process_starts_its_own_watch(lab, backend, monkeypatch):
    """Its watches begin side by side: none of them uses the parent's connections while others are being made."""
    one = running(lab, backend)
    create, parents = client.KubernetesCredentials, backend.client._credentials
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            monkeypatch.setattr(
                client, "KubernetesCredentials", lambda connection: time.sleep(0.3) or create(connection)
            )
            monkeypatch.setattr(parents, "api", lambda: os.write(write_end, b"the parent's connection"))
            os.write(write_end, observe_one(backend, one).phase.name.encode())
        except BaseException:
            os.write(write_end, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as told:
        assert told.read().decode() == "RUNNING"


def watches() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith(("watch-", "log-"))}


def test_an_unfollowed_cluster_has_no_thread_and_no_request(lab, backend):
    """It was deleted, or is reached in a new way: see `apps.training.reconcile.engine_watch.create_engine_watchers`."""
    before = watches()
    stop = lab.watched(backend)
    one = running(lab, backend)
    until(lambda: watches() - before, what="threads")
    stop.set()
    lab.cluster.break_connections()
    until(lambda: not watches() - before, what="no threads")
    calls = len(lab.cluster.calls())
    lab.cluster.break_connections()
    lab.cluster.evict(lab.cluster.pods(POD)[0])
    assert len(lab.cluster.calls()) == calls
    until_seen(backend, one, lambda seen: seen.phase is Phase.FAILED)  # who asks again begins anew
    assert backend._watch._listeners == []


def test_an_unused_cache_is_dropped(lab, backend, monkeypatch):
    before = watches()
    one = running(lab, backend)
    monkeypatch.setattr(watch, "IDLE_SECONDS", 0.0)
    until(lambda: not watches() - before, what="no threads")
    monkeypatch.undo()
    assert observe_one(backend, one).phase is Phase.RUNNING


def test_an_outage_is_one_log_line_per_kind(lab, backend, caplog: pytest.LogCaptureFixture):
    running(lab, backend)
    lab.cluster.kubeconfig.unlink()
    lab.cluster.break_connections()
    kinds = len(backend._watch._kinds)
    until(lambda: len([r for r in caplog.records if "cannot be watched" in r.message]) == kinds, what="said")
    tries = 0
    for follow in backend._watch._follows:
        until(lambda follow=follow: follow.error is not None, what="it failed")
        tries += 1
    assert tries == kinds
    assert not [record for record in caplog.records if record.exc_info], "a traceback"
