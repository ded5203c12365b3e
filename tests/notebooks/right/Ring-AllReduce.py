# %% 1: each round by itself
def answer_1(machines, size):
    chunk = size / machines
    return sum(ALPHA + BETA * chunk * (machines - 1) for _ in ("push", "pull"))


# %% 2: row by row
def answer_2(ring, x):
    mine = [None] * ring.n
    mine[ring.k] = x[ring.k]
    for distance in range(1, ring.n):
        row = x[(ring.k + distance) % ring.n]
        for _ in range(distance):
            row = ring.exchange(row, np.empty_like(row))
        mine[(ring.k - distance) % ring.n] = row
    return mine


# %% 1: the latency and the bytes apart, as a NumPy number
def answer_1(n, S):
    received = np.float64(S) - S / n
    return 2 * ALPHA + received * BETA + BETA * received


# %% 2: the last row comes first
def answer_2(ring, x):
    k, n = ring.k, ring.n
    mine = x.copy()
    moving = [x[(k - d) % n] for d in range(1, n)]
    for s in range(1, n):
        came = ring.exchange(np.stack(moving), np.empty([n - s, *x.shape[1:]]))
        mine[(k - s) % n] = came[-1]
        moving = list(came[:-1])
    return mine
