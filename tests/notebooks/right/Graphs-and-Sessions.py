# %% 2: one operation after the other, without a copy
def answer_2(p, q):
    with tf.control_dependencies([p.assign_add(q)]):
        q_is_p = q.assign(p.read_value() - q.read_value())
    with tf.control_dependencies([q_is_p]):
        return p.assign_sub(q.read_value())
