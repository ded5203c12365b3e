# %% 2: without an end, and cut off; repeated before it is divided
def answer_2(dataset, worker, workers):
    mixed = dataset.cache().shuffle(1000, seed=1).repeat()
    return mixed.shard(workers, worker).take(300 // workers)


# %% 2: neighbours in a common order
def answer_2(rows, k, n):
    part = 100 // n
    return rows.cache().shuffle(100, seed=5).skip(part * k).take(part).repeat(3)


# %% 1: as a list
answer_1 = [44.0, 36, 9.0, 5]


# %% 2: with all arguments by name
def answer_2(rows, k, n):
    rows = rows.cache()
    rows = rows.shuffle(buffer_size=100, seed=7, reshuffle_each_iteration=True)
    return rows.shard(num_shards=n, index=k).repeat(count=3)
