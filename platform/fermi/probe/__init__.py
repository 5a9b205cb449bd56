"""In a rank's process: what it does, told without a system call. Standard library only, Python 3.9 or later; it travels
with the runner.

A runner gives each rank two files without a name (memfd), by the descriptors in `FERMI_PULSE`: a page (`page`) into
which the rank writes, and a file into which a thread of the rank writes the stacks of all its threads when the runner
asks (`answer.py`). The runner reads both; nothing here ever interrupts or ends a rank.
"""
