# %% 1: only one way
answer_1 = 144

# %% 1: a tenth of the computing instead of the whole time
answer_1 = 320

# %% 1: bits for bytes
answer_1 = 36

# %% 1: too large
answer_1 = 300


# %% 2: the rate at which the sums end behind
answer_2 = (0.2, "b")

# %% 2: the wrong reason
answer_2 = (0.02, "a")

# %% 2: the mini-batches do not depend on the rate
answer_2 = (0.02, "c")
