# %% 1: a filter that names the whole job names the missing worker, too
answer_1 = {"B", "C", "E"}

# %% 1: the target decides, not the filters
answer_1 = {"C"}

# %% 1: a session without the ps among its filters
answer_1 = {"C", "D", "E"}


# %% 2: it initialises what belongs to another client
def answer_2(target, config):
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        again = tf.get_variable("v", initializer=7.0)
        with tf.Session(target, config=config) as session:
            session.run(again.initializer)
            return session.run(again)


# %% 2: without a device it is a variable of worker 0
def answer_2(target, config):
    with tf.Graph().as_default():
        again = tf.get_variable("v", initializer=7.0)
        with tf.Session(target, config=config) as session:
            return session.run(again)


# %% 2: another name is another variable
def answer_2(target, config):
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        again = tf.get_variable("v_again", initializer=7.0)
        with tf.Session(target, config=config) as session:
            return session.run(again)


# %% 2: a constant
def answer_2(target, config):
    return 42.0


# %% 1: all whose target answers
answer_1 = {"A", "B", "C", "D", "E"}

# %% 1: only the one that names a worker
answer_1 = {"E"}

# %% 1: the targets instead of the clients
answer_1 = {"ps", "worker 0"}


# %% 2: the variable instead of its value
def answer_2(target, config):
    with tf.device("/job:ps/task:0"):
        return tf.get_variable("v", initializer=7.0)


# %% 2: the value that it had
def answer_2(target, config):
    return 10.0
