# %% 1: as if nothing had failed
answer_1 = 50 * 120, 50 * 90

# %% 1: as if all had waited
answer_1 = 50 * 90, 50 * 90

# %% 1: as if nobody waited
answer_1 = 5400, 5400

# %% 1: only the asynchronous training
answer_1 = 5400


# %% 2: the fewest pushes in all
def answer_2(before, after):
    return np.argmin(after)


# %% 2: the fastest
def answer_2(before, after):
    return np.argmax(after - before)


# %% 2: the same worker, whatever was read
def answer_2(before, after):
    return 1


# %% 2: by which factor it grew
def answer_2(before, after):
    return np.argmin(after / before)


# %% 1: three workers are missing
answer_1 = 50 * 90 + 20 * 30, 50 * 90

# %% 1: the two trainings the wrong way round
answer_1 = 50 * 90, 5400


# %% 2: how many pushes, not whose
def answer_2(before, after):
    return np.min(after - before)


# %% 2: counted from 1
def answer_2(before, after):
    return np.argmin(after - before) + 1
