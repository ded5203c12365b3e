# %% 1: half of the limit would need as many workers
answer_1 = 50, 25

# %% 1: divided by what can be divided
answer_1 = 1 / 0.98, 49

# %% 1: as many as the limit
answer_1 = 50, 50

# %% 2: as many as the gradient is longer than the message
answer_2 = 100, 1

# %% 2: a speed-up without messages
answer_2 = 10, 10

# %% 2: where computing takes no longer than a single message
answer_2 = 20, 4
