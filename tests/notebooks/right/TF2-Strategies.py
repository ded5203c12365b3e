# %% 1: by TensorFlow's own function
def answer_1(losses, size):
    return tf.nn.compute_average_loss(losses, global_batch_size=size)


# %% 1: the mean, times the share
def answer_1(losses, size):
    return tf.reduce_mean(losses) * tf.cast(tf.size(losses), tf.float32) / size


# %% 1: each example's share, added up
def answer_1(losses, size):
    return tf.reduce_sum(losses / tf.cast(size, losses.dtype))


# %% 1: the factor in front
def answer_1(losses, size):
    return (1 / size) * tf.tensordot(losses, tf.ones_like(losses), 1)


# %% 2: as an array
answer_2 = np.array([256, 2048, 16_000])
