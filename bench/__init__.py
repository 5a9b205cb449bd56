"""How fast Fermi is, each figure beside what it is compared with, measured in the same run: `make bench`.

    python -m bench                 everything (about ten minutes on two cores)
    python -m bench preview sweep   some of it

A machine's speed and what else it does change every figure; a ratio of two things measured in turns changes little.
A missed target is shown and fails nothing.
"""
