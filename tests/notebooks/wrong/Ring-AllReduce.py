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


# %% 3: each worker keeps what it has
def answer_3(ring, x):
    return x


# %% 3: all rows go around
def answer_3(ring, x):
    mine, moving = x.copy(), x
    for s in range(1, ring.n):
        moving = ring.exchange(moving, np.empty_like(moving))
        mine[(ring.k - s) % ring.n] = moving[ring.k]
    return mine


# %% 3: only the neighbour's row
def answer_3(ring, x):
    mine = x.copy()
    mine[ring.k - 1] = ring.exchange(x[(ring.k + 1) % ring.n], np.empty_like(x[0]))
    return mine


# %% 3: worker 0 does not take part
def answer_3(ring, x):
    return ring.exchange(x, np.empty_like(x)) if ring.k else x
