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
