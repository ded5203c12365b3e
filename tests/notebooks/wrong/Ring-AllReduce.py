# %% 1: the other convention, in which chunk 5 starts at worker 5
answer_1 = 0, {5, 6, 7, 0}

# %% 1: without the numbers of the worker that has just received it
answer_1 = 1, {6, 7, 0}

# %% 1: to the left
answer_1 = 3, {6, 5, 4, 3}


# %% 2: the ring's formula
def answer_2(n, S):
    return 2 * (n - 1) * (ALPHA + BETA * S / n)


# %% 2: pushed, but not pulled
def answer_2(n, S):
    return ALPHA + BETA * (n - 1) * S / n


# %% 2: a machine also sends its own chunk to itself
def answer_2(n, S):
    return 2 * (ALPHA + BETA * S)


# %% 2: right for eight machines only
def answer_2(n, S):
    return 2 * (ALPHA + BETA * 7 * S / n)
