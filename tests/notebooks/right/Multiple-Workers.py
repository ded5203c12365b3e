# %% 2: a loop over the others
def answer_2(s):
    return [sum(s[k] / s[j] for j in range(len(s)) if j != k) for k in range(len(s))]


# %% 3: as fast as the others
answer_3 = [0.025, "B"]
