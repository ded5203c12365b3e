# %% 1: the bytes that a machine has itself counted, too
answer_1 = [7.4, 9.0, 4.85, 0.44]


# %% 2: rounded
answer_2 = [8.0, 4, 2, 54, 3 / 35, 0.22]

# %% 1: of exactly 30 billion parameters
answer_1 = 7.5, 9, 4.9, 0.394


# %% 2: from exactly 174 billion, as an array
answer_2 = np.array([8, 4, 2, 54.4, 0.0857, 0.2175])
