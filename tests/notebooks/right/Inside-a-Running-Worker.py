# %% 2: a loop
def answer_2(old, new):
    added = [int(b) - int(a) for a, b in zip(old, new)]
    return added.index(min(added))
