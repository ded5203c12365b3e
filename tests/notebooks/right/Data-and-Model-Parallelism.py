# %% 2: the later devices have one unit more
def answer_2(k, n):
    first, last = k * 32 // n, (k + 1) * 32 // n
    return [W1[:, first:last].astype("float64"), b1[first:last], W2[first:last]]


# %% 2: every n-th unit
def answer_2(device, devices):
    return W1[:, device::devices], b1[device::devices], W2[device::devices]


# %% 1: as a list
answer_1 = [64, 64, 8]


# %% 2: each array cut by itself
def answer_2(k, n):
    return [
        np.array_split(W1, n, axis=1)[k],
        np.array_split(b1, n)[k],
        np.array_split(W2, n, axis=0)[k],
    ]
