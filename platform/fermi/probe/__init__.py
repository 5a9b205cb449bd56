"""The probe in a rank's process: reports what the rank does, without system calls. Standard library only, Python 3.9 or
later; it ships with the runner.

A runner gives each rank three files without a name (memfd), with their descriptors in `FERMI_PULSE`: a page
(`shared_page`) into which the rank writes, a file into which a thread of the rank writes the stacks of all its threads
when the runner requests them (`stack_writer.py`), and a queue of what its script logs (`records.py`). The runner reads
all three; nothing here ever interrupts or ends a rank.
"""
