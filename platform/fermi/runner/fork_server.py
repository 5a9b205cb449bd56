"""Imports the training stack once, then forks node runners: `import torch` is paid once and not once per rank.

    python -u -m fermi.runner.fork_server --preload torch,numpy

Each line of standard input is an order, `{"specs": [node spec files], "log": file for what goes wrong, "secrets":
{variables of all ranks that are in no file}}`. For each, one node runner is forked per spec, and one line of standard
output says how that ended: `0`, or the exit code of what failed. Waiting for an order with everything imported is what
"standing by" means: from there to the ranks' first line takes two forks. Ends without a word when standard input
closes, so that it never outlives a platform that it stands by for.

Safe because nothing here runs but imports and one look-up: no CUDA context, no autograd, and a thread count of one,
which is checked; if something did start a thread, the ranks are executed instead of forked. An order is read by the
process that is forked for it: what it says, and secrets above all, is in no page that ranks of another order share.

`-u`, with which ranks are executed, too, turns the buffer of C's standard output off (Python/initconfig.c). NCCL prints
its warnings there and does not flush (src/debug.cc, 2.28): a rank that hangs, or that a signal ends, would keep them to
itself, and its script's next line would be glued to half a line of NCCL's.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import gc
import json
import os
import select
import signal
import sys
from importlib import import_module
from typing import NoReturn

from fermi.probe import start, torch_hooks  # noqa: F401 (shared by all ranks, like the training stack)
from fermi.runner import files, node, sandbox, venv  # noqa: F401 (and by all runners)

LATER = (
    "encodings.ascii",
    "fermi.probe.store_connect",
    "fermi.telemetry.aggregation",
    "fermi.telemetry.sampler",
)
"""What runners and ranks come to import themselves: half a millisecond each, and more where it is much."""
TRAINERS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "train")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preload", default="")
    args, _ = parser.parse_known_args()  # a launcher of the release before also passes --later
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the platform's terminal is not for training
    compileall.compile_dir(TRAINERS, quiet=2)  # ranks may not write there
    orders = select.poll()
    orders.register(0, select.POLLIN)
    venv.note_misses()
    imported_from = import_modules(args.preload)
    if _come(orders, 0) & select.POLLIN:
        _pass_on()
    if _come(orders, 0) == select.POLLHUP:
        return
    imported_from = import_modules(",".join(LATER))
    look_up()
    while _come(orders) & select.POLLIN:
        if package_folders() != imported_from:
            os.execv(sys.executable, [sys.executable, "-u", "-m", "fermi.runner.fork_server", *sys.argv[1:]])
        _pass_on()


def import_modules(modules: str) -> dict[str, int]:
    """What they were imported from: imports add to the path, and write their caches there."""
    gc.disable()  # nothing that is imported is garbage: looking for it costs a quarter of the time
    for name in filter(None, modules.split(",")):
        try:
            import_module(name)
        except ImportError as error:
            print(f"fermi: not preloaded: {name}: {error}", file=sys.stderr)
    gc.freeze()  # the collector leaves these pages alone, so the ranks go on sharing them
    gc.enable()
    return package_folders()


def look_up() -> None:
    """Look up, and import, what the first step of every optimizer of torch needs for its name in a profile."""
    with contextlib.suppress(Exception), sys.modules["torch"].autograd.profiler.record_function("fermi"):
        pass  # where that fails, ranks do it themselves


def _come(orders: select.poll, milliseconds: int | None = None) -> int:
    """What has come on standard input: the events of poll(2)."""
    return sum(event for _, event in orders.poll(milliseconds))


def _pass_on() -> None:
    if (child := os.fork()) == 0:
        _carry_out(forkable=len(os.listdir("/proc/self/task")) == 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def package_folders() -> dict[str, int]:
    """What packages are imported from, and when something was last put there or removed: a process that stands by for
    weeks shall not give ranks half of a package from before an upgrade."""
    return {path: os.stat(path).st_mtime_ns for path in sys.path if os.path.isdir(path)}


def _carry_out(forkable: bool) -> NoReturn:
    with open(0, "rb", buffering=0, closefd=False) as orders:
        order = json.loads(orders.readline())
    with open(order["log"], "ab") as log:
        os.dup2(log.fileno(), 2)
    for spec_path in order["specs"]:
        if os.fork() == 0:
            _become_node(spec_path, order["secrets"], forkable)
    os._exit(0)


def _become_node(spec_path: str, secrets: dict[str, str], forkable: bool) -> NoReturn:
    """A node runner in a session of its own, with no descriptor of the platform's left open."""
    given = os.open(os.devnull, os.O_RDONLY) if forkable else _in_memory(json.dumps(secrets))
    detach(given, files.Paths(spec_path).log)
    if not forkable:
        os.execv(sys.executable, [sys.executable, "-m", "fermi.runner.node", spec_path, "-"])
    node.main(spec_path, secrets)
    os._exit(0)  # tearing the inherited modules down would cost a third of a second and touch every shared page


def detach(given: int, log_path: str, mode: int = 0o640) -> None:
    """Gives this process a session of its own, `given` as standard input and the log as output, and no other descriptor
    of what it was forked from."""
    os.setsid()
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode)
    for source, target in ((given, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.closerange(3, 256)


def _in_memory(text: str) -> int:
    """A file without a name, to be read from its beginning."""
    descriptor = os.memfd_create("fermi")
    with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
        file.write(text)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


if __name__ == "__main__":
    main()
