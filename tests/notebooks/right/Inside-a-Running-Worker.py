# %% 2: a loop
def answer_2(old, new):
    added = [int(b) - int(a) for a, b in zip(old, new)]
    return added.index(min(added))


# %% 1: as a list
answer_1 = [5400, 4500.0]


# %% 2: by the sign
def answer_2(before, after):
    return int((before - after).argmax())


# %% 2: sorted
def answer_2(before, after):
    return sorted(range(len(before)), key=lambda k: after[k] - before[k])[0]
