"""The platform's side of `fermi.inside`: training inside of dev environments, whatever engine they run on.

bundle.py     our modules as one archive, and the program that unpacks it
keeper.py     into an environment that the platform made
session.py    one stream: requests and their answers, and what comes by itself
"""
