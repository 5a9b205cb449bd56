import os

import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(80):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    if os.environ["RANK"] == "0":
        print(f"iter {step}: loss {loss.item():.4f}, time 250.00ms, mfu 1.2%", flush=True)
