# %% 1: in one formula
def answer_1(short, long, rows, workers):
    return rows * workers * (short - long) / (workers * long - short)


# %% 2: less
answer_2 = np.float32(0.5)
