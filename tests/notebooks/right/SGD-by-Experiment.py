# %% 1: in one formula
def answer_1(short, long, rows, workers):
    return rows * workers * (short - long) / (workers * long - short)


# %% 2: less
answer_2 = np.float32(0.5)


# %% 1: from the large batch
def answer_1(small, large, B, n):
    trace = (small - large) * n * B / (n - 1)
    return trace / (large - trace / B / n)
