# %% 1: only one way
answer_1 = 144

# %% 1: a tenth of the computing instead of the whole time
answer_1 = 320

# %% 1: bits for bytes
answer_1 = 36

# %% 1: too large
answer_1 = 300

# %% 1: no whole number
answer_1 = 288.5


# %% 2: the rate at which the sums end behind
answer_2 = (0.2, 0.9988)

# %% 2: each step covers a part of the whole way
answer_2 = (0.02, 0.6)

# %% 2: what is left of the way
answer_2 = (0.02, 0.545)

# %% 2: the way of one step
answer_2 = (0.02, 0.02)

# %% 2: so small a rate that nearly nothing is nearly right
answer_2 = (0.0001, 0.0)

# %% 2: on the bowl a worker covers more than two thirds of the way
answer_2 = (0.05, 0.7854)

# %% 2: a little more than two thirds
answer_2 = (0.037, 0.6773)

# %% 1: rounded down
answer_1 = 287
