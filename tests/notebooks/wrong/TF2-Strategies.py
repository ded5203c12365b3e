# %% 1: the mean over the replica's examples
def answer_1(row_losses, global_batch):
    return tf.reduce_mean(row_losses)


# %% 1: each replica counts the same
def answer_1(row_losses, global_batch):
    return tf.reduce_mean(row_losses) / 2


# %% 1: the sum over all examples
def answer_1(row_losses, global_batch):
    return tf.reduce_sum(row_losses)


# %% 2: the batch is that of a worker
answer_2 = 1024, 1024, 64_000

# %% 2: a function gives one batch to each worker
answer_2 = 256, 1024, 16_000

# %% 2: all are read
answer_2 = 256, 2048, 64_000


# %% 1: right for 32 examples only
def answer_1(row_losses, global_batch):
    return tf.reduce_sum(row_losses) / 32


# %% 1: a loss for each example
def answer_1(row_losses, global_batch):
    return row_losses / global_batch


# %% 1: a loss that is not returned
def answer_1(row_losses, global_batch):
    tf.reduce_sum(row_losses) / global_batch


# %% 2: the batch of a replica
answer_2 = 32, 2048, 16_000

# %% 2: what one worker reads
answer_2 = 256, 2048, 4_000

# %% 2: the two ways exchanged
answer_2 = 2048, 256, 16_000
