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

# %% 3: the throughput is not divided by the number of workers
answer_3 = 1454 / 197, 0.3, 2.2

# %% 3: the statistical efficiency upside down
answer_3 = 0.92, 20224 / 6048, 2.2

# %% 3: the sum of both instead of the product
answer_3 = 0.92, 0.3, 8 * (0.92 + 0.3)
