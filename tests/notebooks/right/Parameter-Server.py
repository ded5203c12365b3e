# %% 2: in two passes
def answer_2(variables, gradients):
    sent = [tf.cast(gradient * lr, tf.bfloat16) for gradient in gradients]
    pushes = ()
    for variable, short in zip(variables, sent):
        with tf.device("/job:ps"):
            with tf.device(variable.device):
                pushes += (variable.assign_add(-tf.cast(short, tf.float32)),)
    return pushes


# %% 2: the other type of 2 bytes
def answer_2(w, g):
    def push(v, short):
        with tf.device(v.device):
            return v.assign_sub(tf.cast(short, tf.float32))

    return [push(v, tf.cast(lr * d, tf.float16)) for v, d in zip(w, g)]


# %% 1: rounded up
answer_1 = int(np.ceil(2 * 250e6 * 4 * 8 * 16 / 25e9 / 2))


# %% 2: the factor behind the gradient, and a tuple
def answer_2(w, g):
    short = tuple(tf.cast(d * lr, dtype=tf.bfloat16) for d in g)
    updates = []
    for v, s in zip(w, short):
        with tf.device(v.device):
            updates.append(tf.assign_sub(v, tf.cast(s, v.dtype)))
    return tuple(updates)


# %% 2: the negative is sent
def answer_2(w, g):
    updates = []
    for v, d in zip(w, g):
        short = tf.cast(-lr * d, tf.bfloat16)
        with tf.device(v.device):
            updates.append(tf.assign_add(v, tf.cast(short, tf.float32)))
    return updates
