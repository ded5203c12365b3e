# %% 1: a list
answer_1 = [1, [0, 1, 6, 7]]


# %% 2: each round by itself
def answer_2(machines, size):
    chunk = size / machines
    return sum(ALPHA + BETA * chunk * (machines - 1) for _ in ("push", "pull"))


# %% 3: row by row
def answer_3(ring, x):
    mine = [None] * ring.n
    mine[ring.k] = x[ring.k]
    for distance in range(1, ring.n):
        row = x[(ring.k + distance) % ring.n]
        for _ in range(distance):
            row = ring.exchange(row, np.empty_like(row))
        mine[(ring.k - distance) % ring.n] = row
    return mine
