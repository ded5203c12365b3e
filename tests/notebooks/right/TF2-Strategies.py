# %% 1: by TensorFlow's own function
def answer_1(losses, size):
    return tf.nn.compute_average_loss(losses, global_batch_size=size)


# %% 1: the mean, times the share
def answer_1(losses, size):
    return tf.reduce_mean(losses) * tf.cast(tf.size(losses), tf.float32) / size
