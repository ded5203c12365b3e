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


# %% 1: what ran once is remembered
answer_1 = 14

# %% 1: it runs only the first call
answer_1 = 0

# %% 1: n after each of the calls
answer_1 = (0, 1, 2, 12)


# %% 2: the names change places, the values do not
def answer_2(p, q):
    p, q = q, p
    return tf.group(p, q)
