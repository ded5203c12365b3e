# %% 1: as if each pulled after the push before it
def answer_1(n, lr):
    return 4 * (1 - lr) ** n, 4 * (1 - lr) ** n


# %% 1: every step divided by n
def answer_1(n, lr):
    return 4 - n * lr * 4, 4 - lr * 4


# %% 1: the sum begins at 1/2
def answer_1(n, lr):
    return 4 - n * lr * 4, 4 - lr * 4 * sum(1 / (tau + 1) for tau in range(1, n + 1))


# %% 2: the limit of the mean
def answer_2(n):
    return 2 / n


# %% 2: 4n for 4n - 2
def answer_2(n):
    return 2 * np.sin(np.pi / (4 * n))


# %% 2: too large
def answer_2(n):
    return np.pi / (2 * n)


# %% 3: DynSGD's best rate
answer_3 = (1.6, "b")

# %% 3: the order of the pushes is the same at all rates
answer_3 = (0.05, "a")

# %% 3: a shorter step overshoots less
answer_3 = (0.05, "c")
