# %% 1: as a list
answer_1 = [50.0, 49]

# %% 2: rounded, as an array
answer_2 = np.array([10, 5.0])
