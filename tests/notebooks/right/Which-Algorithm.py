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

# %% 1: rounded
answer_1 = 0.64


# %% 2: the other all-reduces, and other ways without a barrier
answer_2 = {
    "a": "Non-Distributed-Setup",
    "b": "Sharded-Training",
    "c": "Compressed-AllReduce",
    "d": "AEAMSGD",
    "T": "144",
    "e": "Gossip-SGD",
    "f": "HogWild",
}


# %% 2: an all-reduce by Horovod, and a coordinator
answer_2 = {
    "a": "Non-Distributed-Setup",
    "b": "Sharded-Training",
    "c": "Horovod-RingAllReduce",
    "d": "ADAG",
    "T": 144,
    "e": "Parameter-Server-Strategy",
    "f": "Bounded-Staleness",
}


# %% 2: T steps between two messages in d, e and f
answer_2 = {
    "a": "Non-Distributed-Setup",
    "b": "Sharded-Training",
    "c": "Ring-AllReduce",
    "d": "DOWNPOUR",
    "T": 144,
    "e": "AEASGD",
    "f": "ADAG",
}
