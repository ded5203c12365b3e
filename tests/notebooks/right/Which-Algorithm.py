# %% 1: read off the picture
answer_1 = np.array(0.65)


# %% 2: folders within a folder
answer_2 = {
    "a": "Non-Distributed-Setup/",
    "b": "Further-Algorithms/Sharded-Training",
    "c": "Horovod-RingAllReduce",
    "d": "Further-Algorithms/Local-SGD/",
    "T": 144.0,
    "e": "Further-Algorithms/Bounded-Staleness",
    "f": "DynSGD",
}


# %% 2: the ring of this repository, and two ways to send seldom without waiting
answer_2 = {
    "a": "Non-Distributed-Setup",
    "b": "Sharded-Training",
    "c": "Ring-AllReduce",
    "d": "AEASGD",
    "T": 144,
    "e": "Delay-Compensation",
    "f": "Async-Local-SGD",
}


# %% 2: nobody waits in e and f; SAGN sends every T-th step
answer_2 = {
    "a": "Non-Distributed-Setup",
    "b": "Sharded-Training",
    "c": "Collective-AllReduce",
    "d": "SAGN",
    "T": 144,
    "e": "DOWNPOUR-Easy",
    "f": "DOWNPOUR",
}
