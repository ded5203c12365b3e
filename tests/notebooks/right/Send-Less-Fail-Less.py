# %% 1: rounded
answer_1 = [24.7, 38.5, 96.7]

# %% 1: rounded to whole %
answer_1 = 25, 38, 97


# %% 2: the new e first
def answer_2(update, error):
    wanted = np.add(update, error)
    size = np.mean(np.abs(wanted))
    left = wanted - size * np.sign(wanted)
    return [wanted - left, left]


# %% 2: the sign by a comparison, layer after layer alike
def answer_2(step, e):
    p = np.array(step) + np.array(e)
    signs = np.where(p > 0, 1.0, -1.0)
    c = signs * (np.abs(p).sum() / p.size)
    return np.array([c, p - c])
