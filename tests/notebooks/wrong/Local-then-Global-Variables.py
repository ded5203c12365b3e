# %% 1: only one way
answer_1 = 144

# %% 1: a tenth of the computing instead of the whole time
answer_1 = 320

# %% 1: bits for bytes
answer_1 = 36

# %% 1: too large
answer_1 = 300


# %% 2: without a pull
def answer_2(worker):
    worker.run(worker.initialise_own)


# %% 2: a pull alone leaves the number of the mini-batch without a value
def answer_2(worker):
    worker.run(worker.pull)


# %% 2: it initialises what all share
def answer_2(worker):
    worker.run(worker.initialise_w)
    worker.run(worker.initialise_own)
    worker.run(worker.pull)


# %% 2: it trains before the pull, and pushes that
def answer_2(worker):
    worker.run(worker.initialise_own)
    worker.run(worker.local_step)
    worker.run(worker.push_then_pull)


# %% 3: the rate at which the sums end behind
answer_3 = (0.2, "b")

# %% 3: the wrong reason
answer_3 = (0.02, "a")

# %% 3: the mini-batches do not depend on the rate
answer_3 = (0.02, "c")
