# %% 1: steps a second of the synchronous workers, not gradients
answer_1 = (360, 10)

# %% 1: the mean time instead of the slowest worker's
answer_1 = (360, 8 / 0.03)

# %% 1: as if all eight were fast
answer_1 = (400, 80)


# %% 2: with its own pushes
def answer_2(seconds):
    return seconds * np.sum(1 / seconds)


# %% 2: the fast worker is stale
def answer_2(seconds):
    return np.sum(seconds) / seconds - 1


# %% 2: the mean over all pushes, for each
def answer_2(seconds):
    return np.full(len(seconds), len(seconds) - 1.0)


# %% 3: the straggler as it was
answer_3 = (0.150, "b")

# %% 3: as if the barrier were free
answer_3 = (0.05, "c")

# %% 3: as if the barrier made gradients stale
answer_3 = (0.05, "a")

# %% 3: milliseconds
answer_3 = (50, "b")
