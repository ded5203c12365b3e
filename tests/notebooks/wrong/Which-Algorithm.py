# %% 1: the constant part does not shrink
answer_1 = 0.405

# %% 1: half of the times are exponential
answer_1 = 0.5

# %% 1: all of each time
answer_1 = 1

# %% 2: asynchronous everywhere
answer_2 = {**dict.fromkeys("abcdef", "HogWild"), "T": 144}

# %% 2: an all-reduce of all of the gradient over a slow link
names = "Non-Distributed-Setup Sharded-Training Collective-AllReduce Collective-AllReduce HogWild Synchronous-SGD"
answer_2 = dict(zip("abcdef", names.split()), T=144)

# %% 2: model parallelism before sharding
names = (
    "Non-Distributed-Setup Model-Parallelism Collective-AllReduce DiLoCo HogWild Synchronous-SGD"
)
answer_2 = dict(zip("abcdef", names.split()), T=144)

# %% 2: an exchange at each step, of fewer bytes
names = "Non-Distributed-Setup Sharded-Training Collective-AllReduce Compressed-AllReduce HogWild Synchronous-SGD"
answer_2 = dict(zip("abcdef", names.split()), T=144)

# %% 2: exchanges as long as gradients
names = "Non-Distributed-Setup Sharded-Training Collective-AllReduce DiLoCo HogWild Synchronous-SGD"
answer_2 = dict(zip("abcdef", names.split()), T=16)

# %% 2: a tenth of the gradients' time
names = "Non-Distributed-Setup Sharded-Training Collective-AllReduce DiLoCo HogWild Synchronous-SGD"
answer_2 = dict(zip("abcdef", names.split()), T=160)

# %% 2: rounds down
names = "Non-Distributed-Setup Sharded-Training Collective-AllReduce DiLoCo HogWild Synchronous-SGD"
answer_2 = dict(zip("abcdef", names.split()), T=143)

# %% 2: more than needed
names = "Non-Distributed-Setup Sharded-Training Collective-AllReduce DiLoCo HogWild Synchronous-SGD"
answer_2 = dict(zip("abcdef", names.split()), T=500)

# %% 1: in %
answer_1 = 64

# %% 1: the speed of asynchronous workers is not halved
answer_1 = 0.3

# %% 1: equal machines
answer_1 = 0.0
