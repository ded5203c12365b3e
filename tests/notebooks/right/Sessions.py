# %% 2: tasks with their numbers
answer_2 = {"a": {"ps 0"}, "b": ["PS 0"], "c": set(), "d": []}
