"""Benchmarks, each figure next to what it is compared with, measured in the same run: `make bench`.

    python -m bench                 everything (about ten minutes on two cores)
    python -m bench preview sweep   some sections

A machine's speed and its other load change every figure; a ratio of two things measured alternately changes little. A
missed target is shown and fails nothing.
"""
