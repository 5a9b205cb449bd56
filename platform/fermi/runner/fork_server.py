"""A fork server: imports the training stack once, then forks node runners, so that `import torch` is paid once and not
once per rank.

    python -u -m fermi.runner.fork_server --preload torch,numpy [SPEC …]

Each line of standard input is an order, `{"specs": [node spec files], "preload": [modules], "log": file for errors,
"secrets": {variables of all ranks that are in no file}}`. Modules of the order that were not imported before are
imported for it alone. For each order, one node runner is forked per spec, and one line of standard output
reports the result: `0`, or the exit code of what failed. Between orders the process waits with everything imported;
from an order to the ranks' first line takes two forks. It ends silently when standard input closes, so that it never
outlives its platform. `SPEC`: spec files of the first order, whose code is unpacked while the modules are imported.

This is safe because nothing runs here but imports and one look-up: no CUDA context, no autograd, and a thread count of
one, which is checked; if something did start a thread, the ranks are executed instead of forked. An order is read by
the process that is forked for it, so that its content, and secrets above all, is in no page that ranks of another order
share.
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
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from fermi.probe import start, torch_hooks  # noqa: F401 (shared by all ranks, like the training stack)
from fermi.runner import code_delivery, files, node, processes, sandbox, venv  # noqa: F401 (and by all runners)

DEFERRED_MODULES = (
    "encodings.ascii",
    "fermi.probe.store_connect",
    "fermi.telemetry.aggregation",
    "fermi.telemetry.sampler",
)
"""Modules that runners and ranks would import themselves: half a millisecond each, and more where they are large."""
TRAINERS_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "train")


def main() -> None:
    """Serve orders until standard input closes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preload", default="")
    parser.add_argument("specs", nargs="*")
    args, _ = parser.parse_known_args()  # a launcher of the release before also passes --later
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the platform's terminal is not for training
    compileall.compile_dir(TRAINERS_FOLDER, quiet=2)  # ranks may not write there
    orders = select.poll()
    orders.register(0, select.POLLIN)
    if args.specs and os.fork() == 0:
        _unpack_code(args.specs)
    venv.record_missing_modules()
    imported_from = import_modules(args.preload)
    if _poll_orders(orders, 0) & select.POLLIN:
        _fork_for_order()
    if _poll_orders(orders, 0) == select.POLLHUP:
        return
    imported_from = import_modules(",".join(DEFERRED_MODULES))
    warm_up_profiler()
    while _poll_orders(orders) & select.POLLIN:
        if read_package_folders() != imported_from:
            words = ["-u", "-m", "fermi.runner.fork_server", "--preload", args.preload]
            os.execv(sys.executable, [sys.executable, *words])
        _fork_for_order()


def _unpack_code(specs: Sequence[str]) -> NoReturn:
    """Set up the code of the specs. Whatever fails is left to the node runners, which do it again and report it."""
    processes.die_with_parent()
    for path in specs:
        with contextlib.suppress(Exception), open(path, encoding="utf-8") as file:
            spec = json.load(file)
            if "code" in spec:
                code_delivery.check_out_code(spec)
    os._exit(0)


def import_modules(modules: str) -> dict[str, int]:
    """Import the modules and return the folders that they were imported from: imports add to the path, and write their
    caches there."""
    gc.disable()  # nothing that is imported is garbage: looking for it costs a quarter of the time
    for name in filter(None, modules.split(",")):
        try:
            import_module(name)
        except ImportError as error:
            print(f"fermi: not preloaded: {name}: {error}", file=sys.stderr)
    gc.freeze()  # the collector leaves these pages alone, so the ranks go on sharing them
    gc.enable()
    return read_package_folders()


def warm_up_profiler() -> None:
    """Enter torch's profiler once, as each rank's first optimizer step would."""
    with contextlib.suppress(Exception), sys.modules["torch"].autograd.profiler.record_function("fermi"):
        pass  # where that fails, ranks do it themselves


def _poll_orders(orders: select.poll, milliseconds: int | None = None) -> int:
    """Return the events (poll(2)) on standard input."""
    return sum(event for _, event in orders.poll(milliseconds))


def _fork_for_order() -> None:
    if (child := os.fork()) == 0:
        _carry_out_order()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)  # the one that unpacked code


def read_package_folders() -> dict[str, int]:
    """Return the folders of sys.path with their last change in nanoseconds: a process that waits for weeks must not
    give ranks half of a package from before an upgrade."""
    return {path: os.stat(path).st_mtime_ns for path in sys.path if os.path.isdir(path)}


def _carry_out_order() -> NoReturn:
    with open(0, "rb", buffering=0, closefd=False) as orders:
        order = json.loads(orders.readline())
    with open(order["log"], "ab") as log:
        os.dup2(log.fileno(), 2)
    import_modules(",".join(name for name in order.get("preload", ()) if name not in sys.modules))
    forkable = len(os.listdir("/proc/self/task")) == 1
    for spec_path in order["specs"]:
        if os.fork() == 0:
            _become_node(spec_path, order["secrets"], forkable)
    os._exit(0)


def _become_node(spec_path: str, secrets: dict[str, str], forkable: bool) -> NoReturn:
    """Become a node runner with its own session and no descriptor of the platform's."""
    given = os.open(os.devnull, os.O_RDONLY) if forkable else _create_memory_file(json.dumps(secrets))
    detach_process(given, files.RunnerPaths(spec_path).log)
    if not forkable:
        os.execv(sys.executable, [sys.executable, "-m", "fermi.runner.node", spec_path, "-"])
    node.main(spec_path, secrets)
    os._exit(0)  # tearing the inherited modules down would cost a third of a second and touch every shared page


def detach_process(stdin: int, log_path: str, mode: int = 0o640) -> None:
    """Give this process its own session, `stdin` as standard input, the log as output, and no other descriptor of its
    parent."""
    os.setsid()
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode)
    for source, target in ((stdin, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.closerange(3, 256)


def _create_memory_file(text: str) -> int:
    """Return a descriptor of a file without a name, positioned at its beginning."""
    descriptor = os.memfd_create("fermi")
    with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
        file.write(text)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


if __name__ == "__main__":
    main()
