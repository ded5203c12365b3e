# %% 2: without an end, and cut off
def answer_2(dataset):
    return dataset.cache().shuffle(1000, seed=1).repeat().take(300)
