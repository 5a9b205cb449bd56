"""Whether a process lives."""

from fermi.runner import processes


def alive(pid: int) -> bool:
    """One that has ended and that nobody has asked about is dead; and so is one that ends while it is looked at."""
    return processes.read_start_time(pid) is not None
