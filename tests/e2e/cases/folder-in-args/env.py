import sys

print("ARGV", sys.argv, flush=True)
