# %% 1: the constant part does not shrink
answer_1 = 0.405

# %% 1: half of the times are exponential
answer_1 = 0.5

# %% 1: all of each time
answer_1 = 1

# %% 2: asynchronous everywhere
answer_2 = {**dict.fromkeys("abcdef", "HogWild"), "T": 144}

# %% 2: an all-reduce of all of the gradient over a slow link
answer_2 = {
    "a": "Non-Distributed-Setup",
    "b": "Sharded-Training",
    "c": "Collective-AllReduce",
    "d": "Collective-AllReduce",
    "T": 144,
    "e": "HogWild",
    "f": "Synchronous-SGD",
}

# %% 2: model parallelism before sharding
answer_2 = {
    "a": "Non-Distributed-Setup",
    "b": "Model-Parallelism",
    "c": "Collective-AllReduce",
    "d": "DiLoCo",
    "T": 144,
    "e": "HogWild",
    "f": "Synchronous-SGD",
}

# %% 2: an exchange at each step, of fewer bytes
answer_2 = {
    "a": "Non-Distributed-Setup",
    "b": "Sharded-Training",
    "c": "Collective-AllReduce",
    "d": "Compressed-AllReduce",
    "T": 144,
    "e": "HogWild",
    "f": "Synchronous-SGD",
}

# %% 2: exchanges as long as gradients
answer_2 = {
    "a": "Non-Distributed-Setup",
    "b": "Sharded-Training",
    "c": "Collective-AllReduce",
    "d": "DiLoCo",
    "T": 16,
    "e": "HogWild",
    "f": "Synchronous-SGD",
}

# %% 2: a tenth of the gradients' time
answer_2 = {
    "a": "Non-Distributed-Setup",
    "b": "Sharded-Training",
    "c": "Collective-AllReduce",
    "d": "DiLoCo",
    "T": 160,
    "e": "HogWild",
    "f": "Synchronous-SGD",
}

# %% 2: rounds down
answer_2 = {
    "a": "Non-Distributed-Setup",
    "b": "Sharded-Training",
    "c": "Collective-AllReduce",
    "d": "DiLoCo",
    "T": 143,
    "e": "HogWild",
    "f": "Synchronous-SGD",
}

# %% 2: more than needed
answer_2 = {
    "a": "Non-Distributed-Setup",
    "b": "Sharded-Training",
    "c": "Collective-AllReduce",
    "d": "DiLoCo",
    "T": 500,
    "e": "HogWild",
    "f": "Synchronous-SGD",
}
