"""Packages that are installed in environments: surveyed from inside, compared, and installed.

surveys.py       what one interpreter has, kept for a while; surveyed by threads of the workers
installation.py  installs packages when a user asks for it
presenters.py    both, as the API returns them
"""
