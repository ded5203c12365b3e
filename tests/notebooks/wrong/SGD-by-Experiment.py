# %% 1: the mean of the workers has noise, too
def answer_1(small, large, B, n):
    return (small - large) / (1 / B - 1 / (n * B)) / large


# %% 1: the difference taken for the noise of B rows
def answer_1(small, large, B, n):
    return B * (small - large) / large


# %% 1: the trace instead of the scale
def answer_1(small, large, B, n):
    return (small - large) / (1 / B - 1 / (n * B))


# %% 2: the momentum of one worker
answer_2 = 0.9

# %% 2: the momentum of one worker and that of asynchrony
answer_2 = 0.9 + 0.75
