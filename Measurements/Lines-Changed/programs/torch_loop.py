"""One process, PyTorch."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
loss_of = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.1)

random = np.random.RandomState(0)
for i in range(500):
    rows = random.randint(len(x), size=32)
    optimizer.zero_grad()
    loss = loss_of(model(x[rows]), y[rows])
    loss.backward()
    optimizer.step()
    if i % 100 == 0:
        print(i, float(loss), flush=True)
print("accuracy", float((model(x).argmax(1) == y).float().mean()))
