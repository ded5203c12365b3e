"""Equal processes, PyTorch: python -m torch.distributed.run --nproc_per_node 2 torch_ddp.py"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import distributed, nn

distributed.init_process_group("gloo")
rank, n = distributed.get_rank(), distributed.get_world_size()
x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
model = nn.parallel.DistributedDataParallel(model)
loss_of = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.1 * n)

random = np.random.RandomState(rank)
for i in range(500 // n):
    rows = random.randint(len(x), size=32)
    optimizer.zero_grad()
    loss = loss_of(model(x[rows]), y[rows])
    loss.backward()
    optimizer.step()
    if i % 100 == 0 and rank == 0:
        print(i, float(loss), flush=True)
if rank == 0:
    print("accuracy", float((model(x).argmax(1) == y).float().mean()))
distributed.barrier()  # nobody leaves while another one still needs it
distributed.destroy_process_group()
