# %% 1: the limit of the mean
def answer_1(n):
    return 2 / n


# %% 1: 4n for 4n - 2
def answer_1(n):
    return 2 * np.sin(np.pi / (4 * n))


# %% 1: too large
def answer_1(n):
    return np.pi / (2 * n)


# %% 2: DynSGD's best rate
answer_2 = (1.6, "b")

# %% 2: the order of the pushes is the same at all rates
answer_2 = (0.05, "a")

# %% 2: a shorter step overshoots less
answer_2 = (0.05, "c")
