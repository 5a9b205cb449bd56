import os

import torch

model = torch.nn.Linear(4, 1).cuda(int(os.environ["LOCAL_RANK"]))
