# %% 2: one operation after the other, without a copy
def answer_2(p, q):
    with tf.control_dependencies([p.assign_add(q)]):
        q_is_p = q.assign(p.read_value() - q.read_value())
    with tf.control_dependencies([q_is_p]):
        return p.assign_sub(q.read_value())


# %% 1: a sum
answer_1 = 0 + 1 + 1 + 10


# %% 2: only one copy, and a chain of edges
def answer_2(p, q):
    old_p = p.read_value()
    with tf.control_dependencies([old_p]):
        moved = p.assign(q)
    with tf.control_dependencies([moved]):
        return q.assign(old_p)


# %% 2: by tf.assign and tf.identity, as a list
def answer_2(p, q):
    old = tf.identity(p), tf.identity(q)
    with tf.control_dependencies(old):
        return [tf.assign(p, old[1]), tf.assign(q, old[0])]
