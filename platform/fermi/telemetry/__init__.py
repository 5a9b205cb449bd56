"""Measure what a node, its GPUs and its ranks use: every few seconds in the process that drives ranks there (the node
runner, the worker agent), with the same code. Standard library only, Python 3.9 or later: it is shipped with the
runner."""
