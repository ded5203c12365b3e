# %% 1: prefetch hides nothing
answer_1 = 44, 44, 9, 5

# %% 1: rounds down
answer_1 = 44, 36, 9, 4


# %% 2: the cache stores the shuffled rows
def answer_2(rows):
    return rows.shuffle(100).cache().repeat(3)


# %% 2: the epochs mix
def answer_2(rows):
    return rows.cache().repeat(3).shuffle(100)


# %% 2: no cache
def answer_2(rows):
    return rows.shuffle(100).repeat(3)


# %% 2: other rows of the same number
def answer_2(rows):
    return tf.data.Dataset.range(100).shuffle(100).repeat(3)


# %% 2: a buffer of two rows
def answer_2(rows):
    return rows.cache().shuffle(2).repeat(3)
