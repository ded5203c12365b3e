# %% 1: it forgets that each worker pulls and pushes
answer_1 = 3

# %% 1: rounded down
answer_1 = 5

# %% 1: bits taken for bytes
answer_1 = 1


# %% 2: both casts are on the worker
def answer_2(w, g):
    received = [tf.cast(tf.cast(lr * d, tf.bfloat16), tf.float32) for d in g]
    return [v.assign_sub(d) for v, d in zip(w, received)]


# %% 2: the learning rate is missing
def answer_2(w, g):
    updates = []
    for v, d in zip(w, g):
        short = tf.cast(d, tf.bfloat16)
        with tf.device(v.device):
            updates.append(v.assign_sub(tf.cast(short, tf.float32)))
    return updates


# %% 2: a copy on the worker moves, and w does not
def answer_2(w, g):
    return [tf.cast(v - lr * d, tf.bfloat16) for v, d in zip(w, g)]


# %% 2: a type of 2 bytes without fractions
def answer_2(w, g):
    updates = []
    for v, d in zip(w, g):
        short = tf.cast(lr * d, tf.int16)
        with tf.device(v.device):
            updates.append(v.assign_sub(tf.cast(short, tf.float32)))
    return updates


# %% 1: half servers
answer_1 = 5.12

# %% 1: millions of parameters taken for MB
answer_1 = 2

# %% 1: the messages of a second
answer_1 = 11


# %% 2: the wrong sign
def answer_2(w, g):
    updates = []
    for v, d in zip(w, g):
        short = tf.cast(lr * d, tf.bfloat16)
        with tf.device(v.device):
            updates.append(v.assign_add(tf.cast(short, tf.float32)))
    return updates


# %% 2: four bytes, as before
def answer_2(w, g):
    return [v.assign_sub(lr * d) for v, d in zip(w, g)]


# %% 2: updates that are not returned
def answer_2(w, g):
    for v, d in zip(w, g):
        short = tf.cast(lr * d, tf.bfloat16)
        with tf.device(v.device):
            v.assign_sub(tf.cast(short, tf.float32))
