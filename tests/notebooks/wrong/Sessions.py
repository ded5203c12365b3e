# %% 1: as if a read and an addition were one
answer_1 = 500

# %% 1: one too many
answer_1 = 508

# %% 1: each worker makes its own 500
answer_1 = 4000

# %% 2: worker 1's wait has a limit
answer_2 = {"a": {"ps", "worker 1"}, "b": {"ps"}, "c": set(), "d": set()}

# %% 2: the ps ends without a token
answer_2 = {"a": {"ps"}, "b": set(), "c": set(), "d": set()}

# %% 2: the order of starting does not matter
answer_2 = {"a": {"ps"}, "b": {"ps"}, "c": {"worker 0", "worker 1"}, "d": set()}

# %% 2: the chief waits for worker 1
answer_2 = {"a": {"ps 0"}, "b": {"ps 0", "chief"}, "c": set(), "d": set()}

# %% 1: two workers
answer_1 = 501

# %% 1: one too few
answer_1 = 506

# %% 1: each of eight goes on by one push after 500
answer_1 = 500 * 8 + 8

# %% 2: who is not there never ends
answer_2 = {"a": {"ps", "chief"}, "b": {"ps"}, "c": set(), "d": set()}

# %% 2: a worker that comes too late waits for ever
answer_2 = {"a": {"ps"}, "b": {"ps"}, "c": set(), "d": {"worker 1"}}
