# %% 1: a forward pass that is not repeated
answer_1 = 7.4, 9, 3.64, 0.39

# %% 1: one ring instead of two levels
answer_1 = 7.4, 9, 4.85, 3.5

# %% 1: sharded inside a machine only
answer_1 = 59.2, 2, 4.85, 0.39

# %% 1: the traffic of DDP
answer_1 = 7.4, 9, 4.85, 0.26

# %% 2: two groups of ranks for each machine
answer_2 = 16, 2, 2, 54.3, 0.0303, 0.217

# %% 2: fewer stages than fit
answer_2 = 8, 2, 4, 76.1, 0.0588, 0.652

# %% 2: a longer pipeline than it needs
answer_2 = 8, 8, 1, 43.5, 0.0986, 0

# %% 2: ZeRO 1 forgotten
answer_2 = 8, 4, 2, 87.0, 0.0857, 0.217

# %% 2: the bubble as a share of the ideal time
answer_2 = 8, 4, 2, 54.3, 0.09375, 0.217

# %% 2: the idle share in %
answer_2 = 8, 4, 2, 54.3, 8.57, 0.217

# %% 2: all 64 micro-batches in each pipeline
answer_2 = 8, 4, 2, 54.3, 0.0448, 0.217

# %% 2: the reduce-scatter only
answer_2 = 8, 4, 2, 54.3, 0.0857, 0.109

# %% 1: the states of the whole model
answer_1 = 474, 9, 4.85, 0.39

# %% 1: no room left for the states
answer_1 = 7.4, 10, 4.85, 0.39

# %% 1: the work of all GPUs
answer_1 = 7.4, 9, 310.7, 0.39

# %% 1: only the first two numbers
answer_1 = 7.4, 9
