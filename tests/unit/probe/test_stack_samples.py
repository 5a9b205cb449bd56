"""Where the main thread of a rank is between its collectives."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

from fermi.probe import setup
from fermi.probe.shared_page import SharedPage
from fermi.probe.stack_samples import MAX_LOOKS, MAX_TEXT_LENGTH, StackSampler


@contextmanager
def load_batch() -> Iterator[int]:
    """The identity of a thread that is in `load_batch_of_test`, inside of the standard library."""
    inside, done = Event(), Event()

    def load_batch_of_test() -> None:
        inside.set()
        done.wait()

    thread = threading.Thread(target=load_batch_of_test)
    thread.start()
    inside.wait()
    assert thread.ident is not None
    try:
        yield thread.ident
    finally:
        done.set()
        thread.join()


def test_the_location_is_the_scripts_line_the_librarys_function_and_its_share() -> None:
    with load_batch() as main:
        places = StackSampler(main)
        for number in range(8):
            places.take_sample(waits=number % 4 == 0)
        found = places.most()
    file, _, rest = found["at"].partition(":")
    assert file.endswith("test_stack_samples.py")
    assert rest.endswith(" in load_batch_of_test")
    assert found["inside"].startswith("wait (")
    assert found["inside"].endswith("/threading.py)")
    assert found["share"] == 0.75


def test_waiting_and_ended_ranks_have_no_location() -> None:
    with load_batch() as main:
        places = StackSampler(main)
        assert places.most() == {}
        places.take_sample(waits=False)
    for _ in range(MAX_LOOKS):
        places.take_sample(waits=True)
    assert places.most() == {}
    places.take_sample(waits=False)  # of a thread that has ended
    assert places.most() == {}


def test_the_longest_location_fits_on_the_page() -> None:
    given = setup.create_rank_files()
    page = SharedPage(given.page)
    said = {"at": "x" * MAX_TEXT_LENGTH, "inside": "y" * MAX_TEXT_LENGTH, "share": 0.33}
    page.text("place", said)
    assert page._text(512, 512) == said
    page.map.close()
    given.close()
