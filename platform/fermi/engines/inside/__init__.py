"""Attempts, or nodes of them, that run inside of dev environments: what engines share that can enter one
(`Backend.enter`).

    render.py     a node of a plan as an order for `fermi.inside`; pure
    starting.py   brings the task's code and begins the node's runner there
    followers.py  one stream per environment, by which all is told and asked; into the files of `carried`
    seen.py       from these files to an observation; pure

What an engine adds: how a stream is opened, whether the environment is still the one in which a node was begun, and
what became of it if not.
"""
