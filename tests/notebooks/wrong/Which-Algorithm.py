# %% 1: as many bytes are not fewer
answer_1 = 2, 2

# %% 1: a pull is free
answer_1 = 2, 1

# %% 1: T = 1 against a hundred
answer_1 = 3, 1


# %% 2: a run that broke is taken for the best
def answer_2(losses):
    best = min(losses, key=losses.get)
    return best, best in (min(losses), max(losses))


# %% 2: the edge of the dict instead of the edge of the rates
def answer_2(losses):
    sound = {rate: loss for rate, loss in losses.items() if np.isfinite(loss)}
    best = min(sound, key=sound.get)
    return best, best in (list(losses)[0], list(losses)[-1])


# %% 2: runs that broke are forgotten
def answer_2(losses):
    sound = {rate: loss for rate, loss in losses.items() if np.isfinite(loss)}
    best = min(sound, key=sound.get)
    return best, best in (min(sound), max(sound))


# %% 3: asynchronous everywhere
answer_3 = dict.fromkeys("abcdef", "HogWild")

# %% 3: an all-reduce of all of the gradient over a slow link
answer_3 = {
    "a": "Non-Distributed-Setup",
    "b": "Sharded-Training",
    "c": "Collective-AllReduce",
    "d": "Collective-AllReduce",
    "e": "HogWild",
    "f": "Synchronous-SGD",
}

# %% 3: model parallelism before sharding
answer_3 = {
    "a": "Non-Distributed-Setup",
    "b": "Model-Parallelism",
    "c": "Collective-AllReduce",
    "d": "DiLoCo",
    "e": "HogWild",
    "f": "Synchronous-SGD",
}
