# %% 1: a loop over the others
def answer_1(s):
    return [sum(s[k] / s[j] for j in range(len(s)) if j != k) for k in range(len(s))]


# %% 2: as fast as the others
answer_2 = ["0.025", 0.1]


# %% 1: without its own term
def answer_1(seconds):
    pushes = np.asarray(seconds)[:, None] / np.asarray(seconds)[None, :]
    return pushes.sum(axis=1) - np.diag(pushes)
