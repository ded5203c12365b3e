# %% 1: with its own pushes
def answer_1(seconds):
    return seconds * np.sum(1 / seconds)


# %% 1: the fast worker is stale
def answer_1(seconds):
    return np.sum(seconds) / seconds - 1


# %% 1: the mean over all pushes, for each
def answer_1(seconds):
    return np.full(len(seconds), len(seconds) - 1.0)


# %% 2: the straggler as it was
answer_2 = (0.150, 0.1)

# %% 2: ahead by a hair
answer_2 = (0.099, 0.1)

# %% 2: four equal machines are not one
answer_2 = (0.05, 0.025)

# %% 2: the straggler of the run
answer_2 = (0.05, 0.150)

# %% 2: milliseconds
answer_2 = (50, 100)


# %% 1: the other one's time, which is right for two workers only
def answer_1(seconds):
    return seconds / seconds[::-1]


# %% 1: the workers of the run, not those that are given
def answer_1(seconds):
    times = np.array(PAUSES)
    return times * np.sum(1 / times) - 1


# %% 1: one number for all
def answer_1(seconds):
    return len(seconds) - 1


# %% 2: four pauses of the straggler
answer_2 = (0.05, 4 * 0.150)
