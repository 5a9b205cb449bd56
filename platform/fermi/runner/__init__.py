"""Runs one node's processes on one host, and survives whoever started it. Standard library only.

How one is started                              What all of them do
  template.py    imports the training stack       prepare.py    meets the other nodes (meet.py), binds late values
                 once, then forks runners                       (late.py), chooses the interface (interfaces.py)
  pod.py         the main process of a pod        node.py       a node's life; rank.py: how a rank begins
  slurm.py       a task of a Slurm step           stops.py      who asks for the end: signals, a file, the end of input
  foreground.py  in a terminal, by hand           outputs.py    what ranks print, where a runner passes it on

Why a node fails                                What is kept, and read by the platform
  blame.py       who failed first                 files.py      spec, lock, status, request to end
  ports.py       who has the port                 status.py     reads a status, and knows whether its runner still lives
  room.py        which disk is full               ending.py     ends a runner, whatever it is doing
  stillness.py   who does nothing                 processes.py  pid and start time, sessions, signals
  exits.py       exit codes                       confine.py    what ranks may reach
"""
