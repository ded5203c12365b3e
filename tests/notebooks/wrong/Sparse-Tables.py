# %% 1: only the way down
answer_1 = (128_000, 2_560_000_000)

# %% 1: without the numbers of the rows
answer_1 = (256_000, 5_120_000_000)

# %% 1: for each server
answer_1 = (258_000, 1_280_000_000)


# %% 2: a quarter of the rows is taken for a quarter of the lookups
def answer_2(strategy):
    return 0.25


# %% 2: the two conventions are exchanged
def answer_2(strategy):
    frequency = 1 / np.arange(1, 1001)
    on_ps_0 = frequency[:250] if strategy == "mod" else frequency[::4]
    return on_ps_0.sum() / frequency.sum()


# %% 2: a sum of frequencies is no share
def answer_2(strategy):
    frequency = 1 / np.arange(1, 1001)
    return (frequency[:250] if strategy == "div" else frequency[::4]).sum()


# %% 1: the numbers of the rows in both directions
answer_1 = (260_000, 5_120_000_000)

# %% 1: how many numbers, not bytes
answer_1 = (64_500, 1_280_000_000)

# %% 1: only the rows that are needed, also dense
answer_1 = (258_000, 256_000)


# %% 2: in blocks, whatever is asked
def answer_2(strategy):
    frequency = 1 / np.arange(1, 1001)
    return frequency[:250].sum() / frequency.sum()


# %% 2: in %
def answer_2(strategy):
    frequency = 1 / np.arange(1, 1001)
    on_ps_0 = frequency[:250] if strategy == "div" else frequency[::4]
    return 100 * on_ps_0.sum() / frequency.sum()


# %% 2: the last of four servers
def answer_2(strategy):
    frequency = 1 / np.arange(1, 1001)
    on_ps_3 = frequency[750:] if strategy == "div" else frequency[3::4]
    return on_ps_3.sum() / frequency.sum()
