# %% 2: another rate
answer_2 = ["0.01", 0.26]

# %% 2: nearly two thirds of the way
answer_2 = (0.035, 0.657)

# %% 1: rounded up
answer_1 = np.ceil(round(6.4 * 9 / 0.2, 6))
