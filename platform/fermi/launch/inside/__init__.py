"""The platform's side of `fermi.inside`: training inside of dev environments, whatever engine they run on.

bundle.py     our modules as one archive, and the program that unpacks it
session.py    one stream: requests and their answers, and what comes by itself
"""
