# %% 3: another rate
answer_3 = ["0.01", "B"]
