# %% 1: a string
answer_1 = "C, E"

# %% 1: a list
answer_1 = ["e", "c"]


# %% 2: by a shape, in the graph that is there
def answer_2(target, config):
    with tf.device("/job:ps/task:0"):
        again = tf.get_variable("v", [])
    with tf.Session(target, config=config) as session:
        return float(session.run(again))


# %% 2: read by eval
def answer_2(target, config):
    with tf.Graph().as_default():
        with tf.device("/job:ps"):
            again = tf.get_variable("v", initializer=0.0)
        with tf.Session(target, config=config):
            return again.eval()
