"""Fixtures for the whole suite. What a single area needs stays beside its tests."""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from hypothesis import HealthCheck, settings
from whitenoise.middleware import WhiteNoiseMiddleware

from apps.common import pubsub
from fermi import messages
from fermi.engines.agent import engine
from fermi.jobs.spec import Cause
from scripts import shares
from tests import sampling
from tests.clean_environment import forget_variables
from tests.lazy import heavy_modules
from tests.platform_process import Running, copy_database
from tests.settings import POSTGRES

forget_variables()
# An example that takes longer on a busy machine is no failure.
settings.register_profile(
    "fermi", max_examples=sampling.MAX_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fermi")

ROOT = Path(__file__).resolve().parents[1]
SHARED_OUT = ("e2e", "faults")
LONGEST = ("e2e", "faults", "isolation", "contract", "openapi")

gc.disable()  # until all tests are imported: nothing of them is garbage, and looking for it takes a third of the time


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give Hypothesis the run's seed, where it got none by `--hypothesis-seed`."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = sampling.seed()


def pytest_report_header() -> str:
    return f"{sampling.VARIABLE}={sampling.seed()} repeats what this run draws"


def pytest_collection_finish() -> None:
    if names := heavy_modules(sys.modules):
        raise pytest.UsageError(f"collecting tests imports {', '.join(names)}: use tests.lazy, or import inside a test")
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of several processes none shall be left alone with a file of minutes when the others have finished. And of tests
    with one id, xdist runs but one."""
    ids = Counter(item.nodeid for item in items)
    if twice := [name for name, count in ids.items() if count > 1]:
        raise pytest.UsageError(f"several tests have one id: {twice[:5]}")
    if hasattr(config, "workerinput"):
        leave_out_shares(config, items)
        items.sort(key=lambda item: item.path.relative_to(ROOT / "tests").parts[0] not in LONGEST)


def leave_out_shares(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out files of long tests, and tests for both databases, that another run takes (scripts/shares.py)."""
    share = shares.get_current_share()
    long = {item.path for item in items if item.path.relative_to(ROOT / "tests").parts[0] in SHARED_OUT}
    out = shares.list_left_out(long, share)

    def is_left_out(item: pytest.Item) -> bool:
        both = bool(share) and item.get_closest_marker("database") is not None
        return item.path in out or (both and shares.is_for_other_database(item.path, sampling.seed(), POSTGRES))

    left_out = {item for item in items if is_left_out(item)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """It is there before Django asks, and goes with its folder or its server."""
    return True


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None) -> None:
    """Each test process has a copy of one database that was migrated once, for ten seconds of the processor's time."""
    about = connections["default"].settings_dict
    copy_database(about["TEST"].get("NAME") or f"test_{about['NAME']}")


@pytest.fixture(scope="session", autouse=True)
def texts_without_gaps() -> Iterator[None]:
    """People get a dash where a text lacks a parameter; here it is an error. And every cause that the product makes,
    every event that it records and every notice that it tells in these tests is rendered in both languages, whether or
    not the test goes on to read it."""
    from apps.environments import transitions as of_environments
    from apps.notices.sender import message
    from apps.notices.services.incidents import open_incident
    from apps.training.core import transitions

    ours = (str(ROOT / "apps"), str(ROOT / "platform"))
    make = Cause.__init__
    rendered: set[tuple[str, ...]] = set()

    def made(self: Cause, code: str, *params: Any, **named: Any) -> None:
        make(self, code, *params, **named)
        kind = (code, *self.params)
        maker = sys._getframe(1).f_code
        given = maker.co_name != "<module>"  # else it is declared there
        if code and given and kind not in rendered and maker.co_filename.startswith(ours):
            for lang in messages.LANGUAGES:
                messages.render_text(code, lang, **self.params)
            rendered.add(kind)

    def rendering(write: Callable[..., None], of: str, at: int) -> Callable[..., None]:
        """`write` of the module `of`, whose arguments `at` and `at + 1` are a code and its parameters."""

        def written(*args: Any, **named: Any) -> None:
            code, params = args[at : at + 2]
            kind = (code, *sorted(params))
            caller = sys._getframe(1)
            while caller.f_code.co_filename == of and caller.f_back:  # a module's functions call each other
                caller = caller.f_back
            if kind not in rendered and caller.f_code.co_filename.startswith(ours) and not _noted(caller):
                for lang in messages.LANGUAGES:
                    messages.render_text(code, lang, **message.resolve_message_params(params, lang))
                rendered.add(kind)
            write(*args, **named)

        return written

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(messages, "report_fault", _raise)
        patched.setattr(Cause, "__init__", made)
        for module, write, at in (
            (transitions, transitions.record_event, 3),
            (of_environments, of_environments.record_event, 1),
        ):
            patched.setattr(module, write.__name__, rendering(write, str(module.__file__), at))
        for module in [
            one for one in list(sys.modules.values()) if vars(one).get(open_incident.__name__) is open_incident
        ]:
            patched.setattr(module, open_incident.__name__, rendering(open_incident, "", 2))
        yield


def _noted(frame: Any) -> bool:
    """Whether a finding is told of: tests hand in findings that say less than the product's, whose texts have tests of
    their own."""
    while frame:
        if frame.f_code.co_filename.endswith("training/core/findings.py"):
            return True
        frame = frame.f_back
    return False


@pytest.fixture(scope="session", autouse=True)
def queue_looked_at_anew() -> None:
    """What one test computed says nothing to the next, whose database is another."""
    from apps.training.queue import outlook

    outlook.MAX_AGE = timedelta()


@pytest.fixture(scope="session", autouse=True)
def policy_read_already() -> None:
    """The sign-in policy is read when a process needs it first; tests/api/test_sign_in_policy.py changes it."""
    from apps.policies.policy import Policy, set_cached_policy

    set_cached_policy(Policy())


@pytest.fixture(scope="session", autouse=True)
def own_channels(worker_id: str) -> None:
    """Redis has its channels beside its databases: what tests of another process publish would arrive in this one."""
    pubsub.CHANNEL_PREFIX = f"fermi-{worker_id}:"


@pytest.fixture(scope="session", autouse=True)
def files_looked_for_once() -> Iterator[None]:
    """Each of Django's test clients has middleware of its own, and WhiteNoise looks for all static files when it
    begins: that takes four times as long as a request."""
    known: dict[tuple[str, ...], dict[str, Any]] = {}

    def once(find: Callable[..., None]) -> Callable[..., None]:
        def remembered(self: WhiteNoiseMiddleware, *where: str) -> None:
            if where not in known:
                before, self.files = self.files, {}
                find(self, *where)
                known[where], self.files = self.files, before
            self.files.update(known[where])

        return remembered

    with pytest.MonkeyPatch.context() as patched:
        for name in ("update_files_dictionary", "add_files_from_finders"):
            patched.setattr(WhiteNoiseMiddleware, name, once(getattr(WhiteNoiseMiddleware, name)))
        yield


@pytest.fixture(autouse=True)
def own_store_of_agents() -> Iterator[None]:
    """A test that gives worker agents a store in memory gives it to the whole process."""
    before = engine.store
    yield
    engine.store = before


def _raise(said: str, *about: object) -> None:
    raise AssertionError(said % about)


@pytest.fixture(scope="module")
def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One real platform for the tests of a module that use it as its users do; the module's `SETTINGS` are its."""
    settings = getattr(request.module, "SETTINGS", {})
    running = Running(tmp_path_factory.mktemp("platform") / "data", **settings).start()
    yield running
    running.close()
