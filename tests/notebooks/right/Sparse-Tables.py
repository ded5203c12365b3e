# %% 2: a comprehension
def answer_2(how):
    words = range(250) if how == "div" else range(0, 1000, 4)
    return np.float32(sum(1 / (id + 1) for id in words) / sum(1 / (id + 1) for id in range(1000)))


# %% 1: by the formula, as a list
answer_1 = [500 * (2 * 4 * 64 + 4), 2 * 4 * 64 * 10e6]
