import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, required=True)
parser.add_argument("--dist-url")
parser.add_argument("--text")
args = parser.parse_args()
assert args.local_rank == int(os.environ["LOCAL_RANK"])
assert args.dist_url == f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
print("launched", args.text, os.environ["MINE"])
