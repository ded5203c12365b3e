# %% 1: the mean of the workers has noise, too
def answer_1(small, large, B, n):
    return (small - large) / (1 / B - 1 / (n * B)) / large


# %% 1: the difference taken for the noise of B rows
def answer_1(small, large, B, n):
    return B * (small - large) / large


# %% 1: the trace instead of the scale
def answer_1(small, large, B, n):
    return (small - large) / (1 / B - 1 / (n * B))


# %% 2: the momentum of one worker
answer_2 = 0.9

# %% 2: the momentum of one worker and that of asynchrony
answer_2 = 0.9 + 0.75


# %% 1: the result of the example, whatever is given
def answer_1(small, large, B, n):
    return 128


# %% 1: upside down
def answer_1(small, large, B, n):
    trace = (small - large) / (1 / B - 1 / (n * B))
    return (small - trace / B) / trace


# %% 1: it computes, and returns nothing
def answer_1(small, large, B, n):
    trace = (small - large) / (1 / B - 1 / (n * B))
    print(trace / (small - trace / B))


# %% 2: none at all
answer_2 = 0

# %% 2: the two differ in their sign
answer_2 = 0.6 - 0.75

# %% 2: in %
answer_2 = 60

# %% 2: the limit itself
answer_2 = 1.0
