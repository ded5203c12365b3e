# %% 2: another rate
answer_2 = ["0.01", 0.26]
