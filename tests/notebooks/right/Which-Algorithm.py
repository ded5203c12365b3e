# %% 1: a loop
def answer_1(rates):
    best, lowest = None, float("inf")
    for rate in sorted(rates):
        if rates[rate] < lowest:
            best, lowest = rate, rates[rate]
    return [np.float32(best), np.bool_(best == min(rates) or best == max(rates))]


# %% 2: folders within a folder
answer_2 = {
    "a": "Non-Distributed-Setup/",
    "b": "Further-Algorithms/Sharded-Training",
    "c": "Horovod-RingAllReduce",
    "d": "Further-Algorithms/Local-SGD/",
    "e": "Further-Algorithms/Bounded-Staleness",
    "f": "DynSGD",
}
