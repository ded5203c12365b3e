# %% 1: w jumps, but does not run away
answer_1 = 10, 20

# %% 1: the factor is -1 instead of 0
answer_1 = 20, 21

# %% 1: it arrives from the other side
answer_1 = 10, 11


# %% 2: from rest the look-ahead is invisible
def answer_2(step):
    return np.allclose(step(0.0, 0.0, 0.0), [0, 6, 6])


# %% 2: a law that holds with each slip of E
def answer_2(step):
    w, w_k, v = step(20.0, 70.0, 5.0)
    return np.isclose(w + w_k, 90 + v)


# %% 2: w alone
def answer_2(step):
    return np.isclose(step(20.0, 70.0, 5.0)[0], 35)


# %% 2: the given step, not the equation
def answer_2(step):
    state = 20.0, 70.0, 5.0
    return np.allclose(step(*state), eamsgd_step(*state, elastic=True))


# %% project: E after the last step
def answer_project(w, step, gradient, T=10, alpha=0.3, lr=0.2, pushes=100):
    own = [tf.get_local_variable(v.op.name + "_k", initializer=v.read_value()) for v in w]
    windows = tf.get_local_variable("windows", initializer=tf.constant(0, tf.int64))
    first = windows.read_value() * T
    w_k = [v.read_value() for v in own]
    for t in range(T):
        w_k = [c - lr * d for c, d in zip(w_k, gradient(w_k, first + t))]
    E = [alpha * (c - v.read_value()) for c, v in zip(w_k, w)]
    with tf.control_dependencies(E):
        ticket = tf.count_up_to(step, pushes)
    with tf.control_dependencies([ticket]):
        return tf.group(
            windows.assign_add(1),
            *[v.assign(c - e) for v, c, e in zip(own, w_k, E)],
            *[v.assign_add(e) for v, e in zip(w, E)],
        )


# %% project: a pull before each window
def answer_project(w, step, gradient, T=10, alpha=0.3, lr=0.2, pushes=100):
    windows = tf.get_local_variable("windows", initializer=tf.constant(0, tf.int64))
    first = windows.read_value() * T
    w_k = pulled = [v.read_value() for v in w]
    for t in range(T - 1):
        w_k = [c - lr * d for c, d in zip(w_k, gradient(w_k, first + t))]
    E = [alpha * (c - v) for c, v in zip(w_k, pulled)]
    with tf.control_dependencies(E):
        ticket = tf.count_up_to(step, pushes)
    with tf.control_dependencies([ticket]):
        return tf.group(windows.assign_add(1), *[v.assign_add(e) for v, e in zip(w, E)])


# %% project: no tickets
def answer_project(w, step, gradient, T=10, alpha=0.3, lr=0.2, pushes=100):
    own = [tf.get_local_variable(v.op.name + "_k", initializer=v.read_value()) for v in w]
    w_k = [v.read_value() for v in own]
    for t in range(T):
        w_k = [c - lr * d for c, d in zip(w_k, gradient(w_k, t))]
    return tf.group(*[v.assign_add(alpha * (c - v)) for v, c in zip(w, w_k)], step.assign_add(1))


# %% 1: it runs away, but so does a smaller T
answer_1 = 10, 22

# %% 1: only the T that hits
answer_1 = 10

# %% 1: one step instead of one push
answer_1 = 1, 21


# %% 2: the minimum of the notebook's bowl
def answer_2(step):
    E = 0.3 * (70 - 20)
    v = 0.9 * 5 - 0.15 * (70 + 0.9 * 5 - 100)
    return np.allclose(step(20.0, 70.0, 5.0), [20 + E, 70 + v - E, v])


# %% 2: it computes, and returns nothing
def answer_2(step):
    E = 0.3 * (70 - 20)
    v = 0.9 * 5 - 0.15 * (70 + 0.9 * 5 - 40)
    np.allclose(step(20.0, 70.0, 5.0), [20 + E, 70 + v - E, v])


# %% project: only w feels the spring
def answer_project(w, step, gradient, T=10, alpha=0.3, lr=0.2, pushes=100):
    own = [tf.get_local_variable(v.op.name + "_k", initializer=v.read_value()) for v in w]
    windows = tf.get_local_variable("windows", initializer=tf.constant(0, tf.int64))
    first = windows.read_value() * T
    w_k = [v.read_value() for v in own]
    for t in range(T - 1):
        w_k = [c - lr * d for c, d in zip(w_k, gradient(w_k, first + t))]
    g = gradient(w_k, first + T - 1)
    E = [alpha * (c - v.read_value()) for c, v in zip(w_k, w)]
    with tf.control_dependencies([*g, *E]):
        ticket = tf.count_up_to(step, pushes)
    with tf.control_dependencies([ticket]):
        return tf.group(
            windows.assign_add(1),
            *[o.assign(c - lr * d) for o, c, d in zip(own, w_k, g)],
            *[v.assign_add(e) for v, e in zip(w, E)],
        )


# %% project: each window begins with the first mini-batch again
def answer_project(w, step, gradient, T=10, alpha=0.3, lr=0.2, pushes=100):
    own = [tf.get_local_variable(v.op.name + "_k", initializer=v.read_value()) for v in w]
    w_k = [v.read_value() for v in own]
    for t in range(T - 1):
        w_k = [c - lr * d for c, d in zip(w_k, gradient(w_k, t))]
    g = gradient(w_k, T - 1)
    E = [alpha * (c - v.read_value()) for c, v in zip(w_k, w)]
    with tf.control_dependencies([*g, *E]):
        ticket = tf.count_up_to(step, pushes)
    with tf.control_dependencies([ticket]):
        return tf.group(
            *[o.assign(c - lr * d - e) for o, c, d, e in zip(own, w_k, g, E)],
            *[v.assign_add(e) for v, e in zip(w, E)],
        )


# %% project: the spring pushes instead of pulling
def answer_project(w, step, gradient, T=10, alpha=0.3, lr=0.2, pushes=100):
    own = [tf.get_local_variable(v.op.name + "_k", initializer=v.read_value()) for v in w]
    windows = tf.get_local_variable("windows", initializer=tf.constant(0, tf.int64))
    first = windows.read_value() * T
    w_k = [v.read_value() for v in own]
    for t in range(T - 1):
        w_k = [c - lr * d for c, d in zip(w_k, gradient(w_k, first + t))]
    g = gradient(w_k, first + T - 1)
    E = [alpha * (v.read_value() - c) for c, v in zip(w_k, w)]
    with tf.control_dependencies([*g, *E]):
        ticket = tf.count_up_to(step, pushes)
    with tf.control_dependencies([ticket]):
        return tf.group(
            windows.assign_add(1),
            *[o.assign(c - lr * d - e) for o, c, d, e in zip(own, w_k, g, E)],
            *[v.assign_add(e) for v, e in zip(w, E)],
        )
