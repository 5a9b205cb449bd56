import sys
import time

try:
    input("continue? [y/n] ")
except EOFError:
    print("nobody answers", flush=True)
sys.stdout.write("Password: ")
sys.stdout.flush()
time.sleep(600)
