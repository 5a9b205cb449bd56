"""Writes a rank's progress into its page, and decides which of its processes does.

`start.start` is called in every Python process of a rank. The page belongs to one of them:

    watches ─▶ trains      The first process that finds the page free: it may be a launcher, and the training one its
                           child. The first that steps or makes a process group trains, for good; the process that
                           watched until then stops writing. When one ends, its lock is free.

Processes that a DataLoader or `multiprocessing` forks or starts never step, so they never write. Ownership is a POSIX
lock on the page: children do not inherit it, and it ends with its process.

Nothing here may affect the script: after an error the probe turns itself off silently.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import sys
import threading
import time

from . import records, stack_writer
from .shared_page import MAGIC, PAGE_BYTES, PHASES, PULSE_VARIABLE, SharedPage

STACK_SIGNAL = 23  # SIGURG
"""SIGURG: has the stacks written without the GIL. It is only ever sent to the thread that writes stacks
(`stack_writer.py`), so that no system call of the script is interrupted. Its default is to do nothing: a process that
has executed another program, or tears its interpreter down, is not ended by it, as it would be by a real-time signal.
No training library uses it, and no kernel sends it unless a program requests it (F_SETOWN)."""

WATCH_LOCK, TRAIN_LOCK = 0, 1  # bytes of the page that are locked
GPU_PERIOD_SECONDS = 10.0
FIRST_STEPS = 2
"""In these compilation is normal: once for a model's first shapes, once for those that change."""
STARTING, COMPILING, RUNNING, EVALUATING, SAVING, ENDING = range(len(PHASES))

TYPE_CHECKING = False  # `typing` and `signal` are slow to import, and this is by every Python process of a rank
if TYPE_CHECKING:
    from types import TracebackType

    from .inner_ranks import InnerRanks

_SITE_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")


class ProgressWriter:
    """Writes the page of a rank. `mine`: this process owns it. `ranks`: those of the node, where its command starts
    them; `local_rank`: which of them this process is, None: the page is the launcher's."""

    def __init__(
        self, page: int, stacks: int, records: int, ranks: InnerRanks | None = None, local_rank: int | None = None
    ) -> None:
        self.ranks, self.local_rank = ranks, local_rank
        self.mine = self.trains = self.over = False
        self.main = threading.get_ident()
        self._begin()
        self._watch((page, stacks, records))

    def _watch(self, descriptors: tuple[int, int, int]) -> None:
        """Use this page, which is this process's unless another one has it."""
        self.descriptors = descriptors
        self.page = SharedPage(descriptors[0])
        if self._lock(WATCH_LOCK):
            self._take()
            if self.ranks and self.local_rank is not None:
                self.ranks.redirect_output(self.local_rank)

    def _begin(self) -> None:
        self.steps = self.evaluations = self.compiles = self.recompiled = 0
        self.world_size = 0
        self.compiles_before = 0  # the newest step
        self.compiling = self.compiles_at = 0.0
        self.phase = STARTING
        self.stepped_at = self.stepping = self.gpu_at = 0.0

    # --- whose the page is ---

    def _lock(self, place: int) -> bool:
        try:
            fcntl.lockf(self.descriptors[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError:
            return False
        return True

    def _take(self) -> None:
        page, stacks = self.page, self.descriptors[1]
        most = max(page.count("most_steps"), page.count("step"))
        page.map[:] = bytes(PAGE_BYTES)
        page.number("most_steps", most)
        faulthandler.register(STACK_SIGNAL, stacks, all_threads=True, chain=False)
        if not faulthandler.is_enabled():
            faulthandler.enable(2)  # a rank that a signal ends says where it was
        page.moment("began", time.monotonic())
        page.number("pid", os.getpid())
        page.number("magic", MAGIC)
        self.mine = True
        stack_writer.start_writer(page, stacks, lambda: self.mine)

    def advance(self) -> bool:
        """Called when this process steps, or is about to: return True if it may write."""
        if self.trains:
            return True
        self.becomes(0)  # it trains without a launcher's number, and in no group
        if self.over or not self._lock(TRAIN_LOCK):
            self.over, self.mine = True, False
            return False
        if not self.mine:
            self._take()
        self.trains = True
        for descriptor in self.descriptors:
            os.set_inheritable(descriptor, False)
        disable_in_children()
        return True

    def forked(self) -> None:
        """Reset in a forked child, which owns nothing unless it trains."""
        self.mine = self.trains = False
        self.main = threading.get_ident()
        self._begin()

    def owns(self) -> bool:
        """Return True if this process still owns the page; another process may have begun to train. Called only in rare
        events."""
        self.mine = self.mine and self.page.pid() == os.getpid()
        return self.mine

    # --- what it says ---

    def step(self) -> None:
        """Count an optimizer step."""
        now, page = time.monotonic(), self.page
        if not self.trains and not self.advance():
            return
        self.steps += 1
        page.number("step", self.steps)
        page.moment("stepped_at", now)
        if self.stepped_at:
            self.stepping += now - self.stepped_at
            page.moment("stepping", self.stepping)
        self.stepped_at = now
        if self.phase != RUNNING:
            self.to(RUNNING)
        if self.compiles != self.compiles_before:
            self._recompiled()
        if now >= self.gpu_at:
            self.gpu_at = now + GPU_PERIOD_SECONDS
            self._gpu()

    def to(self, phase: int) -> int:
        """Set the phase, and return the one before."""
        before, self.phase = self.phase, phase
        if before != phase and self.owns():
            self.page.moment("phase_at", time.monotonic())
            self.page.number("phase", phase)
        return before

    def _recompiled(self) -> None:
        self.compiles_before = self.compiles
        if self.steps > FIRST_STEPS:
            self.recompiled += 1
            self.page.number("recompiled", self.recompiled)
            self.page.number("recompiled_at", self.steps)

    def meets(self, world_size: object, rank: object = None) -> None:
        """Record that it makes a process group of so many ranks, as this one; the first group has all of them."""
        if self.ranks:
            self.becomes(self.ranks.find_joining_rank(rank, world_size))
        if isinstance(world_size, int) and world_size > 0 and not self.world_size and self.owns():
            self.world_size = world_size
            self.page.number("world_size", world_size)

    def becomes(self, local_rank: int | None) -> None:
        """Let a process of a launcher that is not known to be a rank be this rank of the node from now on. Never
        raises."""
        if self.ranks is None or self.local_rank is not None or local_rank is None:
            return
        try:
            descriptors = self.ranks.open_files(local_rank)
            if self.mine:
                self.page.number("pid", 0)  # its thread that writes stacks ends
            self.mine, self.local_rank = False, local_rank
            records.open_queue(descriptors[2])
            self._watch(descriptors)
        except Exception:
            pass

    def joins(self, rank: object, world_size: object = None) -> None:
        """Record that it joins the group of all as this rank. Not for processes of `multiprocessing`, which make a
        group of their own; unless a command starts the ranks of its node: then they are these."""
        if self.ranks:
            self.becomes(self.ranks.find_joining_rank(rank, world_size))
            ours = None if self.local_rank is None else self.ranks.first + self.local_rank
            if isinstance(rank, int) and ours is not None and rank not in (-1, ours) and self.owns():
                self.page.number("joined_as", 1 + rank)
            return
        own, started = os.environ.get("RANK"), sys.modules.get("multiprocessing.process")
        is_child = started is not None and started.parent_process() is not None
        if isinstance(rank, int) and rank >= 0 and own and str(rank) != own and not is_child and self.owns():
            self.page.number("joined_as", 1 + rank)

    def start_compiling(self) -> int:
        """Set the phase to compiling, and return the one before."""
        self.compiles_at = time.monotonic()
        return self.to(COMPILING)

    def finish_compiling(self, phase: int, *, whole: bool = True) -> None:
        """Return to `phase`. `whole`: that was all of a compilation, or its last part."""
        self.compiles += whole
        self.compiling += time.monotonic() - self.compiles_at
        self.to(phase)
        if self.owns():
            self.page.number("compiles", self.compiles)
            self.page.moment("compiling", self.compiling)

    def evaluates(self) -> None:
        """Set the phase to evaluating, unless parts of the model are set to evaluate in every step: that is no
        evaluation."""
        self.evaluations += 1
        if self.evaluations * 2 <= self.steps or self.steps < 10:
            self.to(EVALUATING)
            if self.mine:
                self.page.number("evaluations", self.evaluations)

    def on_main_thread(self) -> bool:
        """Return True in the thread that created the writer."""
        return threading.get_ident() == self.main

    def _gpu(self) -> None:
        torch = sys.modules.get("torch")
        if torch is None:
            return
        if torch.cuda.is_initialized():
            self.page.number("gpu_bytes", torch.cuda.max_memory_allocated())
        elif not any(getattr(torch.version, name, None) for name in ("cuda", "hip", "xpu")):
            self.page.number("cpu_build", 1)

    # --- how it ends ---

    def failed(self, error: BaseException, traceback: TracebackType | None) -> None:
        """Record the exception that ends the rank. Never raises."""
        try:
            if self.owns():
                from . import errors

                self.page.text("error", {**errors.describe_error(error, traceback), "step": self.steps})
                self.to(ENDING)
        except Exception:
            pass

    def ends(self) -> None:
        """Record that the interpreter ends. Never raises."""
        try:
            error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)  # printed, and not caught
            if self.phase != ENDING and isinstance(error, BaseException):
                self.failed(error, error.__traceback__)
            self.to(ENDING)
        except Exception:
            pass


def disable_in_children() -> None:
    """Remove the probe from the environment of future children, which do not train."""
    os.environ.pop(PULSE_VARIABLE, None)
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if _SITE_FOLDER in folders:
        folders.remove(_SITE_FOLDER)
        os.environ["PYTHONPATH"] = os.pathsep.join(folders)
        if not folders:
            del os.environ["PYTHONPATH"]
