# %% 1: refuses the first session, too
class answer_1(tf.train.SessionRunHook):
    def after_create_session(self, session, coord):
        if session.run(tf.train.get_global_step()) == 0:
            raise RuntimeError("nothing was restored")


# %% 1: refuses each second session
class answer_1(tf.train.SessionRunHook):
    sessions = 0

    def after_create_session(self, session, coord):
        self.sessions += 1
        if self.sessions > 1:
            raise RuntimeError("the session was lost")


# %% 1: TensorFlow raises a RuntimeError of its own
class answer_1(tf.train.SessionRunHook):
    sessions = 0

    def after_create_session(self, session, coord):
        self.sessions += 1
        if self.sessions > 1 and session.run(tf.train.get_global_step()) == 0:
            session.run(tf.global_variables_initializer())


# %% 2: it never puts them back
class answer_2(tf.train.SessionRunHook):
    def __init__(self, w, accuracy):
        self.w, self.accuracy, self.best = w, accuracy, -1

    def after_run(self, context, values):
        accuracy, w = context.session.run([self.accuracy, self.w])
        if accuracy > self.best:
            self.best, self.best_w = accuracy, w


# %% 2: it adds ops to a graph that is finalized
class answer_2(tf.train.SessionRunHook):
    def __init__(self, w, accuracy):
        self.w = w

    def after_run(self, context, values):
        self.best_w = context.session.run(self.w)

    def end(self, session):
        session.run([layer.assign(value) for layer, value in zip(self.w, self.best_w)])
