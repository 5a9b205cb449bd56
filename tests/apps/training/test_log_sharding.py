"""Several watchers and what each follows; time is what the test says."""

import threading
from collections.abc import Callable

import pytest
from django.db import OperationalError

from apps.training.logs.sharding import BEAT_SECONDS, LEASE_SECONDS, LeaseLostError, ShardedWatcher
from apps.training.logs.watcher import TICK_SECONDS, Watcher
from apps.training.models import Event, LogCursor, MetricPoint, Task, Watch
from tests.apps.attempts import begin_attempt, write

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

KEYS = [f"task-{number}" for number in range(200)]


class Clock:
    def __init__(self) -> None:
        self.moment = 1000.0

    def __call__(self) -> float:
        return self.moment


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def joined(clock: Clock) -> Callable[[], ShardedWatcher]:
    def join() -> ShardedWatcher:
        shared = ShardedWatcher(clock)
        shared.beat()
        return shared

    return join


def had(shared: ShardedWatcher) -> set[str]:
    return {key for key in KEYS if shared.has(key)}


def pass_by(clock: Clock, seconds: float, *alive: ShardedWatcher) -> None:
    """Each of `alive` beats as often as it is to."""
    for _ in range(round(seconds / BEAT_SECONDS)):
        clock.moment += BEAT_SECONDS
        for one in alive:
            one.beat()


def test_a_single_watcher_follows_everything(joined: Callable[[], ShardedWatcher]) -> None:
    assert had(joined()) == set(KEYS)


def test_several_watchers_split_tasks_without_gap_or_overlap(joined: Callable[[], ShardedWatcher]) -> None:
    first, second, third = several = joined(), joined(), joined()
    first.beat()
    second.beat()
    assert set().union(*map(had, several)) == set(KEYS)
    assert sum(len(had(one)) for one in several) == len(KEYS)
    assert min(len(had(one)) for one in several) > len(KEYS) / 6
    third.leave()
    before = had(first)
    first.beat()
    assert had(first) > before  # only what the third had changes hands


def test_tasks_of_a_silent_watcher_are_taken_over(joined: Callable[[], ShardedWatcher], clock: Clock) -> None:
    first, second = joined(), joined()
    first.beat()
    theirs = had(second)
    pass_by(clock, LEASE_SECONDS - BEAT_SECONDS, first)
    assert not had(first) & theirs
    pass_by(clock, 3 * BEAT_SECONDS, first)
    assert had(first) == set(KEYS)
    assert had(second) == set()


def test_a_leaving_watcher_is_replaced_at_the_next_heartbeat(joined: Callable[[], ShardedWatcher]) -> None:
    first, second = joined(), joined()
    second.leave()
    first.beat()
    assert had(first) == set(KEYS)


def test_a_stalled_watcher_follows_nothing_and_declares_no_one_dead(
    joined: Callable[[], ShardedWatcher], clock: Clock
) -> None:
    first, second = joined(), joined()
    first.beat()
    clock.moment += 60
    assert had(first) == had(second) == set()  # as after a minute without a database
    first.beat()
    second.beat()
    assert had(first) | had(second) == set(KEYS)
    assert len(Watch.objects.get().members) == 2


def test_a_watcher_replaced_after_its_first_heartbeat_can_return(
    joined: Callable[[], ShardedWatcher], clock: Clock
) -> None:
    first, second = joined(), joined()
    pass_by(clock, LEASE_SECONDS + 2 * BEAT_SECONDS, first)
    assert list(Watch.objects.get().members) == [first.name]
    second.beat()
    first.beat()
    assert set(Watch.objects.get().members) == {first.name, second.name}


def test_a_watcher_without_its_lease_stores_nothing(joined: Callable[[], ShardedWatcher]) -> None:
    first = joined()
    kept = KEYS[0]
    first.confirm(kept)
    second = joined()
    with pytest.raises(LeaseLostError):  # whoever keeps it: the first has not looked since
        first.confirm(kept)
    first.beat()
    (first if first.has(kept) else second).confirm(kept)
    with pytest.raises(LeaseLostError):
        (second if first.has(kept) else first).confirm(kept)


def test_simultaneous_heartbeats_are_all_counted(
    joined: Callable[[], ShardedWatcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = joined(), joined()
    put, faster = ShardedWatcher._put, [second]

    def overtaken(self: ShardedWatcher, row: Watch, epoch: int, members: dict[str, int]) -> bool:
        if faster:
            faster.pop().beat()
        return put(self, row, epoch, members)

    monkeypatch.setattr(ShardedWatcher, "_put", overtaken)
    first.beat()
    assert Watch.objects.get().members == {first.name: 4, second.name: 3}


def test_its_thread_survives_an_error_and_stops_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, ending, beaten = ShardedWatcher(), threading.Event(), threading.Event()
    beat = shared.beat

    def stumbles() -> None:
        if not beaten.is_set():
            beaten.set()
            shared.hurry()
            raise OperationalError("away")
        beat()
        ending.set()
        shared.hurry()

    monkeypatch.setattr(shared, "beat", stumbles)
    thread = threading.Thread(target=shared.run, args=(ending,))
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    row = Watch.objects.get()
    assert (row.members, row.epoch) == ({}, 2)


def test_two_watchers_store_each_line_once(task: Task, joined: Callable[[], ShardedWatcher], clock: Clock) -> None:
    first, second = joined(), joined()
    first.beat()
    has, other = (first, second) if first.has(task.pk) else (second, first)
    holder, heir = Watcher(shares=has), Watcher(shares=other)
    line = '{"step": %d, "loss": 1}\n{"event": "checkpoint", "step": %d, "path": "/c/%d"}\n'

    def rows() -> tuple[int, int]:
        return MetricPoint.objects.count(), Event.objects.filter(kind="script").count()

    for watcher in (holder, heir):
        watcher.find()
        write(task, line % (1, 1, 1))
        watcher.poll(0.0)
    assert rows() == (1, 1)  # the heir follows nothing
    pass_by(clock, LEASE_SECONDS + 2 * BEAT_SECONDS, other)
    heir.find()
    heir.poll(TICK_SECONDS)
    assert rows() == (2, 2)
    clock.moment -= LEASE_SECONDS + 2 * BEAT_SECONDS  # as if it had passed the look at the clock before it stood still
    write(task, line % (3, 3, 3))
    holder.poll(5.0)
    assert rows() == (2, 2)
    clock.moment += LEASE_SECONDS + 2 * BEAT_SECONDS
    other.beat()
    heir.poll(10.0)
    assert rows() == (3, 3)
    assert LogCursor.objects.get(rank=0).offset > 0


def test_the_next_attempt_stays_with_the_same_watcher(task: Task, joined: Callable[[], ShardedWatcher]) -> None:
    shared = joined()
    watcher = Watcher(shares=shared)
    watcher.find()
    begin_attempt(task, 2)
    write(task, '{"step": 1, "loss": 1}\n', attempt=2)
    watcher.find()
    watcher.poll(0.0)
    assert MetricPoint.objects.get().attempt == 2
