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
answer_2 = (1.6, 84.4)

# %% 2: all steps in full
answer_2 = (0.05, 300)

# %% 2: the fast worker's steps in full
answer_2 = (0.05, 159.4)

# %% 2: the mean staleness for each
answer_2 = (0.05, 33.3)


# %% 1: that of one worker, for all
def answer_1(n):
    return 2.0


# %% 1: degrees
def answer_1(n):
    return 2 * np.sin(180 / (4 * n - 2))


# %% 1: it prints the limit, and returns nothing
def answer_1(n):
    print(2 * np.sin(np.pi / (4 * n - 2)))


# %% 2: only the slow workers' steps
answer_2 = (0.05, 150 / 16)

# %% 2: divided by the staleness, not by one more
answer_2 = (0.05, 150 + 150 / 15)
