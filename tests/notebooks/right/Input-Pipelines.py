# %% 2: without an end, and cut off; repeated before it is divided
def answer_2(dataset, worker, workers):
    mixed = dataset.cache().shuffle(1000, seed=1).repeat()
    return mixed.shard(workers, worker).take(300 // workers)


# %% 2: neighbours in a common order
def answer_2(rows, k, n):
    part = 100 // n
    return rows.cache().shuffle(100, seed=5).skip(part * k).take(part).repeat(3)
