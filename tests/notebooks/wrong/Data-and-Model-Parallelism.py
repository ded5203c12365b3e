# %% 1: divided by the ideal time
answer_1 = 71, 71, 8

# %% 1: exactly 10%
answer_1 = 63, 63, 8

# %% 1: less than 10%, but not the least
answer_1 = 70, 70, 8

# %% 1: GPipe and 1F1B the wrong way round
answer_1 = 64, 8, 64


# %% 2: equal parts, and the rest of the units left out
def answer_2(k, n):
    size = 32 // n
    units = slice(k * size, (k + 1) * size)
    return W1[:, units], b1[units], W2[units]


# %% 2: W2 cut by columns, too
def answer_2(k, n):
    units, outputs = np.array_split(np.arange(32), n)[k], np.array_split(np.arange(10), n)[k]
    return W1[:, units], b1[units], W2[:, outputs]


# %% 2: b1 not cut
def answer_2(k, n):
    units = np.array_split(np.arange(32), n)[k]
    return W1[:, units], b1, W2[units]


# %% 1: 1F1B stores as much as GPipe
answer_1 = 64, 64, 64

# %% 1: one stage too few
answer_1 = 64, 64, 7


# %% 2: the last device takes what is left
def answer_2(k, n):
    size = 32 // n
    units = slice(k * size, 32 if k == n - 1 else (k + 1) * size)
    return W1[:, units], b1[units], W2[units]


# %% 2: the rest is rounded up, so the last devices have few units or none
def answer_2(k, n):
    size = -(-32 // n)
    units = slice(k * size, (k + 1) * size)
    return W1[:, units], b1[units], W2[units]


# %% 2: rows of W1 instead of columns
def answer_2(k, n):
    units = np.array_split(np.arange(32), n)[k]
    return W1[units], b1[units], W2[units]
