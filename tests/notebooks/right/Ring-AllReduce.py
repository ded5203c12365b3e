# %% 1: a list
answer_1 = [1, [0, 1, 6, 7]]


# %% 2: each round by itself
def answer_2(machines, size):
    chunk = size / machines
    return sum(ALPHA + BETA * chunk * (machines - 1) for _ in ("push", "pull"))
