# %% 2: tasks with their numbers
answer_2 = {"a": {"ps 0"}, "b": ["PS 0"], "c": set(), "d": []}

# %% 1: a sum
answer_1 = 499 + 8

# %% 2: a single task without its set, and an empty pair of braces
answer_2 = {"a": "ps", "b": "ps", "c": {}, "d": ()}
