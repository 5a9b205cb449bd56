import sys
import time

for step in range(200):
    sys.stderr.write(f"\repoch 0: {step / 2:.0f}%|{'#' * (step // 20):10}| {step}/200")
    sys.stderr.flush()
    time.sleep(0.02)
