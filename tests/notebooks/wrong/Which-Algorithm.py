# %% 1: a run that broke is taken for the best
def answer_1(losses):
    best = min(losses, key=losses.get)
    return best, best in (min(losses), max(losses))


# %% 1: the edge of the dict instead of the edge of the rates
def answer_1(losses):
    sound = {rate: loss for rate, loss in losses.items() if np.isfinite(loss)}
    best = min(sound, key=sound.get)
    return best, best in (list(losses)[0], list(losses)[-1])


# %% 1: runs that broke are forgotten
def answer_1(losses):
    sound = {rate: loss for rate, loss in losses.items() if np.isfinite(loss)}
    best = min(sound, key=sound.get)
    return best, best in (min(sound), max(sound))


# %% 1: only the upper edge
def answer_1(losses):
    sound = {rate: loss for rate, loss in losses.items() if np.isfinite(loss)}
    best = min(sound, key=sound.get)
    return best, best == max(losses)


# %% 2: asynchronous everywhere
answer_2 = dict.fromkeys("abcdef", "HogWild")

# %% 2: an all-reduce of all of the gradient over a slow link
answer_2 = {
    "a": "Non-Distributed-Setup",
    "b": "Sharded-Training",
    "c": "Collective-AllReduce",
    "d": "Collective-AllReduce",
    "e": "HogWild",
    "f": "Synchronous-SGD",
}

# %% 2: model parallelism before sharding
answer_2 = {
    "a": "Non-Distributed-Setup",
    "b": "Model-Parallelism",
    "c": "Collective-AllReduce",
    "d": "DiLoCo",
    "e": "HogWild",
    "f": "Synchronous-SGD",
}
