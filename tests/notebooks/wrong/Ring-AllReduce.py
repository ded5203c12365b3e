# %% 1: the ring's formula
def answer_1(n, S):
    return 2 * (n - 1) * (ALPHA + BETA * S / n)


# %% 1: pushed, but not pulled
def answer_1(n, S):
    return ALPHA + BETA * (n - 1) * S / n


# %% 1: a machine also sends its own chunk to itself
def answer_1(n, S):
    return 2 * (ALPHA + BETA * S)


# %% 1: right for eight machines only
def answer_1(n, S):
    return 2 * (ALPHA + BETA * 7 * S / n)


# %% 2: each worker keeps what it has
def answer_2(ring, x):
    return x


# %% 2: all rows go around
def answer_2(ring, x):
    mine, moving = x.copy(), x
    for s in range(1, ring.n):
        moving = ring.exchange(moving, np.empty_like(moving))
        mine[(ring.k - s) % ring.n] = moving[ring.k]
    return mine


# %% 2: only the neighbour's row
def answer_2(ring, x):
    mine = x.copy()
    mine[ring.k - 1] = ring.exchange(x[(ring.k + 1) % ring.n], np.empty_like(x[0]))
    return mine


# %% 2: worker 0 does not take part
def answer_2(ring, x):
    return ring.exchange(x, np.empty_like(x)) if ring.k else x


# %% 1: a single ps
def answer_1(n, S):
    return 2 * (ALPHA + BETA * n * S)


# %% 1: one chunk only
def answer_1(n, S):
    return 2 * (ALPHA + BETA * S / n)


# %% 2: the distance counted in the other direction
def answer_2(ring, x):
    k, n = ring.k, ring.n
    mine = np.zeros_like(x)
    mine[k] = x[k]
    moving = np.array([x[(k + d) % n] for d in range(1, n)])
    for s in range(1, n):
        moving = ring.exchange(moving, np.empty_like(moving))
        mine[(k + s) % n] = moving[0]
        moving = moving[1:]
    return mine


# %% 2: without the row that stays here
def answer_2(ring, x):
    k, n = ring.k, ring.n
    mine = np.zeros_like(x)
    moving = np.array([x[(k + d) % n] for d in range(1, n)])
    for s in range(1, n):
        moving = ring.exchange(moving, np.empty_like(moving))
        mine[k - s] = moving[0]
        moving = moving[1:]
    return mine
