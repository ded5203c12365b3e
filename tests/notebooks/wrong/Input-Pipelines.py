# %% 1: prefetch hides nothing
answer_1 = 44, 44, 9, 5

# %% 1: rounds down
answer_1 = 44, 36, 9, 4


# %% 2: shard first, as for one epoch
def answer_2(rows, k, n):
    return rows.shard(n, k).cache().shuffle(100, seed=0).repeat(3)


# %% 2: each worker shuffles in its own way
def answer_2(rows, k, n):
    return rows.cache().shuffle(100, seed=k).shard(n, k).repeat(3)


# %% 2: no seed
def answer_2(rows, k, n):
    return rows.cache().shuffle(100).shard(n, k).repeat(3)


# %% 2: the cache stores the shuffled rows
def answer_2(rows, k, n):
    return rows.shuffle(100, seed=0).cache().shard(n, k).repeat(3)


# %% 2: every epoch in the order of the first
def answer_2(rows, k, n):
    shuffled = rows.cache().shuffle(100, seed=0, reshuffle_each_iteration=False)
    return shuffled.shard(n, k).repeat(3)


# %% 2: the epochs mix
def answer_2(rows, k, n):
    return rows.cache().repeat(3).shuffle(300, seed=0).shard(n, k)


# %% 2: no cache
def answer_2(rows, k, n):
    return rows.shuffle(100, seed=0).shard(n, k).repeat(3)


# %% 2: other rows of the same number
def answer_2(rows, k, n):
    return tf.data.Dataset.range(100).shuffle(100, seed=0).shard(n, k).repeat(3)


# %% 2: the shards go around
def answer_2(rows, k, n):
    rows = rows.cache()
    epochs = [rows.shard(n, (k + epoch) % n) for epoch in range(3)]
    return epochs[0].concatenate(epochs[1]).concatenate(epochs[2])


# %% 2: a buffer of two rows
def answer_2(rows, k, n):
    return rows.cache().shuffle(2, seed=0).shard(n, k).repeat(3)


# %% 2: the right numbers, but not from the store
def answer_2(rows, k, n):
    return tf.data.Dataset.range(700, 800).shuffle(100, seed=0).shard(n, k).repeat(3)


# %% 1: parsing forgotten
answer_1 = 38, 30, 8, 4

# %% 1: prefetch makes one thread read and parse at the same time
answer_1 = 44, 30, 9, 5

# %% 1: four calls are faster than the step
answer_1 = 44, 36, 8, 5

# %% 1: a call for each core
answer_1 = 44, 36, 9, 16
