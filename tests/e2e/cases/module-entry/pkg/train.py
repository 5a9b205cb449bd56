import sys

from . import names

print(names.WORD, __name__, __package__, sys.argv[1:], flush=True)
