# %% 1: all 80 GB
answer_1 = [None, None, None, 14]

# %% 1: everything is divided in each stage
answer_1 = [None, 23, 23, 23]

# %% 1: rounded down
answer_1 = [None, None, None, 22]


# %% 2: an update costs what it costs without accumulation
def answer_2(stage, n, m):
    return [2, 2, 2, 3][stage] * (n - 1) / n * 2


# %% 2: everything for each mini-batch
def answer_2(stage, n, m):
    return [2, 2, 2, 3][stage] * m * (n - 1) / n * 2


# %% 2: stage 3 gathers w once
def answer_2(stage, n, m):
    return [2, 2, m + 1, 3][stage] * (n - 1) / n * 2


# %% project: all layers are gathered at the start of an update
solution = as_module(answer_project)
answer_project = solution.replace("order = iter(uses)", "order = iter(())").replace(
    "[network.submit(ring.all_gather, w[next(order)])]",
    "[network.submit(ring.all_gather, w[i]) for i in reversed(uses)]",
)

# %% project: in turn, as before
answer_project = pathlib.Path("zero_3.py").read_text()

# %% project: each worker keeps whole layers
answer_project = pathlib.Path("zero_2.py").read_text()

# %% project: each worker's own gradient
answer_project = solution.replace("sums[i].result() / ring.n", "part(sums[i].result(), ring)")
answer_project = answer_project.replace(
    "network.submit(ring.reduce_scatter, gradient.astype(dtype))",
    "network.submit(gradient.astype, dtype)",
)

# %% 1: all activations fit as well
answer_1 = [23, 23, 23, 23]

# %% 1: stage 2 divides all but 2 bytes, and these fit
answer_1 = [None, None, 23, 23]

# %% 1: only one number
answer_1 = 23


# %% 2: without the share that a worker has itself
def answer_2(stage, n, m):
    return [2, 2, m + 1, 3 * m][stage] * 2


# %% 2: numbers of 4 bytes
def answer_2(stage, n, m):
    return [2, 2, m + 1, 3 * m][stage] * (n - 1) / n * 4


# %% 2: right for 4 workers and 8 mini-batches only
def answer_2(stage, n, m):
    return [3, 3, 13.5, 36][stage]


# %% project: each layer is gathered twice for each use
answer_project = solution.replace(
    "return whole", "return network.submit(ring.all_gather, w[i]).result()"
)

# %% project: without the mean over the workers
answer_project = solution.replace("sums[i].result() / ring.n", "sums[i].result()")
