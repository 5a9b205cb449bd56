"""Runs one node's processes on one host, and survives whoever started it. Standard library only.

How one is started                              What all of them do
  template.py    imports the training stack       prepare.py    meets the other nodes (meet.py), binds late values
                 once, then forks runners                       (late.py), chooses the interface (interfaces.py)
  pod.py         the main process of a pod        node.py       a node's life; rank.py: how a rank begins
  slurm.py       a task of a Slurm step           stops.py      who asks for the end: signals, a file, the end of input
  foreground.py  in a terminal, by hand           outputs.py    what ranks print, where a runner passes it on

Why a node fails                                What is kept, and read by the platform
  blame.py       who failed first                 files.py      spec, lock, status, pulses, request to end
  causes.py      what only its machine can tell   status.py     reads a status, and knows whether its runner still lives
  ports.py       who has the port                 ending.py     ends a runner, whatever it is doing
  room.py        which disk is full               processes.py  pid and start time, sessions, signals
  kernel.py      whom the kernel killed           confine.py    what ranks may reach
  exits.py       exit codes                       seccomp.py    which processes they may change

Who does not get on
  watch.py       looks at all ranks once a second, and closer at those that do not advance
  pulse.py       how one gets on                  patience.py   how long it may be silent, learnt from its past
  stalls.py      whether it does anything         stacks.py     where its threads are
  stillness.py   what its processes have done     waits.py      what its threads wait for
  links.py       which connections get no answer  lingering.py  who has nothing left to wait for
"""
