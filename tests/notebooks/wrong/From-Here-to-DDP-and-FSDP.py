# %% 1: all 80 GB
answer_1 = [None, None, None, 14]

# %% 1: everything is divided in each stage
answer_1 = [None, 23, 23, 23]

# %% 1: rounded down
answer_1 = [None, None, None, 22]


# %% 2: an update costs what it costs without accumulation
def answer_2(stage, n, m):
    return [2, 2, 2, 3][stage] * (n - 1) / n * 2


# %% 2: everything for each mini-batch
def answer_2(stage, n, m):
    return [2, 2, 2, 3][stage] * m * (n - 1) / n * 2


# %% 2: stage 3 gathers w once
def answer_2(stage, n, m):
    return [2, 2, m + 1, 3][stage] * (n - 1) / n * 2
