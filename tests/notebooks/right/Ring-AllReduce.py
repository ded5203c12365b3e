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
