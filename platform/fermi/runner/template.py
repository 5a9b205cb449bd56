"""Imports the training stack once, then becomes the node runners: `import torch` is paid once and not once per rank.

    python -m fermi.runner.template --preload torch,numpy

Reads one line from standard input, `{"specs": [node spec files], "secrets": {variables of all ranks that are in no
file}}`, forks one node runner for each spec and ends. Waiting for that line with everything imported is what "standing
by" means: from there to the ranks' first line takes a fork. Ends without a word when standard input closes, so that it
never outlives a platform that it stands by for.

Safe because nothing here runs but imports: no CUDA context, no autograd, and a thread count of one, which is checked;
if an import did start a thread, the ranks are executed instead of forked.
"""

import argparse
import gc
import json
import os
import signal
import sys
from importlib import import_module

from fermi.runner import confine, files, node  # noqa: F401 (shared by all runners, like the training stack)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preload", default="")
    modules = [name for name in parser.parse_args().preload.split(",") if name]
    gc.disable()  # nothing that is imported is garbage: looking for it costs a quarter of the time
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the platform's terminal is not for training
    for name in modules:
        try:
            import_module(name)
        except ImportError as error:
            print(f"fermi: not preloaded: {name}: {error}", file=sys.stderr)
    gc.freeze()  # the collector leaves these pages alone, so the ranks go on sharing them
    gc.enable()
    print("ready", flush=True)
    line = sys.stdin.readline()
    if not line:
        return
    forkable = len(os.listdir("/proc/self/task")) == 1
    order = json.loads(line)
    for spec_path in order["specs"]:
        if os.fork() == 0:
            _become_node(spec_path, order["secrets"], forkable)
            return
    print("started", flush=True)
    os._exit(0)


def _become_node(spec_path: str, secrets: dict[str, str], forkable: bool) -> None:
    """A node runner in a session of its own, with no descriptor of the platform's left open."""
    os.setsid()
    paths = files.Paths(spec_path)
    log = os.open(paths.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    given = os.open(os.devnull, os.O_RDONLY) if forkable else _in_memory(json.dumps(secrets))
    for source, target in ((given, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.closerange(3, 256)
    if forkable:
        node.main(spec_path, secrets)
    else:
        os.execv(sys.executable, [sys.executable, "-m", "fermi.runner.node", spec_path, "-"])


def _in_memory(text: str) -> int:
    """A file without a name, to be read from its beginning."""
    descriptor = os.memfd_create("fermi")
    with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
        file.write(text)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


if __name__ == "__main__":
    main()
