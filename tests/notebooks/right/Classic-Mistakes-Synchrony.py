# %% 1: layer by layer
def answer_1(rank, mean_of, copy):
    equal = 1.0
    for layer in copy:
        mean = mean_of(rank, layer.astype("float64"))
        equal = equal if np.array_equal(mean, layer) else 0.0
    return mean_of(rank, equal) == 1.0


# %% 1: a number for each worker, with a tolerance
def answer_1(k, all_reduce, w):
    mine = np.concatenate([v.ravel() for v in w]).astype(np.float64)
    apart = np.square(all_reduce(k, mine) - mine).sum()
    return all_reduce(k, apart) < 1e-12
