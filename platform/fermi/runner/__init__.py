"""Runs one node's processes on one host, and survives whoever started it.

node.py       one file, standard library only: the node runner (it can be mounted into a container as it is)
template.py   imports the training stack once, then forks node runners whose ranks inherit it
slurm.py      one node of a job as a task of a Slurm step
status.py     reads what a node runner wrote, and knows whether it is still that same process
ending.py     ends it, whatever it is doing
processes.py  process identity on Linux: pid + start time, sessions, signals that cannot hit a stranger
"""
