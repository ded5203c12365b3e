# %% 1: layer by layer
def answer_1(rank, mean_of, copy):
    equal = 1.0
    for layer in copy:
        mean = mean_of(rank, layer.astype("float64"))
        equal = equal if np.array_equal(mean, layer) else 0.0
    return mean_of(rank, equal) == 1.0
