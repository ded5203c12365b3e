# %% 1: each worker tells only what it sees
def answer_1(k, all_reduce, w):
    mine = np.concatenate([v.ravel() for v in w]).astype("float64")
    return bool(np.abs(mine - all_reduce(k, mine)).max() == 0)


# %% 1: only the first layer
def answer_1(k, all_reduce, w):
    mine = w[0].astype("float64")
    distance = np.abs(mine - all_reduce(k, mine)).max()
    return bool(all_reduce(k, distance) == 0)


# %% 1: who sees a difference leaves at once
def answer_1(k, all_reduce, w):
    mine = np.concatenate([v.ravel() for v in w]).astype("float64")
    if np.abs(mine - all_reduce(k, mine)).max() > 0:
        return False
    return bool(all_reduce(k, 0.0) == 0)


# %% project: the sum instead of the mean
def answer_project():
    made_by = 30 * [(0, 1)]
    return one_worker(made_by, lr=0.4), made_by, [(2, 0)]


# %% project: two gradients of anyone
def answer_project():
    made_by = 5 * [(0, 1)] + 25 * [(0, 0)]
    return one_worker(30 * [(0, 1)]), made_by, [(2, 0)]


# %% project: the stale gradient of worker 2 moves w
def answer_project():
    made_by = 5 * [(0, 1)] + [(1, 2)] + 24 * [(0, 1)]
    return one_worker(made_by), made_by, []


# %% 1: their sums are equal
def answer_1(k, all_reduce, w):
    mine = sum(float(v.astype("float64").sum()) for v in w)
    return bool(all_reduce(k, abs(mine - all_reduce(k, mine))) < 1e-9)


# %% project: one worker, and no process
def answer_project():
    made_by = 30 * [(0, 1)]
    return one_worker(made_by), made_by, [(2, 0)]


# %% project: worker 2 is not started
def answer_project():
    cluster = new_cluster(ps=1, worker=3)
    tasks = ("ps", 0), ("worker", 0), ("worker", 1)
    stop(*[start("server.py", cluster, *task) for task in tasks])
    made_by = 30 * [(0, 1)]
    return one_worker(made_by), made_by, [(2, 0)]


# %% 1: differences of both signs, which add up to nothing
def answer_1(k, all_reduce, w):
    mine = np.concatenate([v.ravel() for v in w]).astype("float64")
    return bool(all_reduce(k, (mine - all_reduce(k, mine)).sum()) < 1e-9)


# %% 1: always equal
def answer_1(k, all_reduce, w):
    return True


# %% project: all three gradients in each step
def answer_project():
    return one_worker(30 * [(0, 1)]), 30 * [(0, 1, 2)], []
