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
