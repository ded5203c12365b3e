# %% 1: an operation that two fetches need runs twice
answer_1 = 13

# %% 1: a control dependency is no edge
answer_1 = 11

# %% 1: all runs in each call
answer_1 = 44


# %% 2: no edge between the reads and the assignments
def answer_2(p, q):
    return tf.group(p.assign(q), q.assign(p))


# %% 2: one after the other, without the old value
def answer_2(p, q):
    with tf.control_dependencies([p.assign(q)]):
        return q.assign(p)


# %% 2: only one of the two
def answer_2(p, q):
    return p.assign(q)


# %% 2: only one read comes first
def answer_2(p, q):
    old_p = p.read_value()
    with tf.control_dependencies([old_p]):
        return tf.group(p.assign(q), q.assign(old_p))


# %% 2: right for these two values only
def answer_2(p, q):
    return tf.group(p.assign(2), q.assign(1))
