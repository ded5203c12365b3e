# %% 1: the bytes that a machine has itself counted, too
answer_1 = [7.4, 9.0, 4.85, 0.44]


# %% 2: rounded
answer_2 = [8.0, 4, 2, 54, 3 / 35, 0.22]
