# %% 2: a loop over the others
def answer_2(s):
    return [sum(s[k] / s[j] for j in range(len(s)) if j != k) for k in range(len(s))]
