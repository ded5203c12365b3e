# %% 1: a bisection
def answer_1(n):
    low, high = 0.0, 4.0
    moves = ", ".join(
        ["pull %d" % k for k in range(n)]
        + ["push %d, pull %d" % (i % n, i % n) for i in range(150 * n)]
    )
    for _ in range(9):
        lr = (low + high) / 2
        last = max(abs(row[1]) for row in play(moves, lr)[-8 * n :])
        low, high = (lr, high) if last < 4 else (low, lr)
    return low


# %% 2: another rate
answer_2 = ["0.06", 84]


# %% 1: by the other half of the angle
def answer_1(n):
    return 2 * np.cos(np.pi / 2 * (2 * n - 2) / (2 * n - 1))
