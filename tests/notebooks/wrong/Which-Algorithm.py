# %% 1: the constant part does not shrink
answer_1 = 0.405

# %% 1: half of the times are exponential
answer_1 = 0.5

# %% 1: all of each time
answer_1 = 1

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
