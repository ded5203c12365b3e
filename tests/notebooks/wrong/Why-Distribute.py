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

# %% 1: the two numbers the wrong way round
answer_1 = 49, 50

# %% 1: twice the limit's workers
answer_1 = 50, 100

# %% 1: only the limit
answer_1 = 50

# %% 2: the time instead of the speed-up
answer_2 = 10, 5.12

# %% 2: one worker too many
answer_2 = 11, 4.98

# %% 2: upside down
answer_2 = 10, 0.2
