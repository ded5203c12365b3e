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


# %% 1: it stops the training in silence
class answer_1(tf.train.SessionRunHook):
    sessions = 0

    def after_create_session(self, session, coord):
        self.sessions += 1
        if self.sessions > 1 and session.run(tf.train.get_global_step()) == 0:
            coord.request_stop()


# %% 1: it prints a line
class answer_1(tf.train.SessionRunHook):
    sessions = 0

    def after_create_session(self, session, coord):
        self.sessions += 1
        if self.sessions > 1 and session.run(tf.train.get_global_step()) == 0:
            print("nothing was restored")


# %% 1: it counts in begin, which comes only once
class answer_1(tf.train.SessionRunHook):
    sessions = 0

    def begin(self):
        self.sessions += 1

    def after_create_session(self, session, coord):
        if self.sessions > 1 and session.run(tf.train.get_global_step()) == 0:
            raise RuntimeError("nothing was restored")


# %% 2: it keeps the last parameters that it has tested
class answer_2(tf.train.SessionRunHook):
    def __init__(self, w, accuracy):
        self.w, self.accuracy, self.runs, self.best = w, accuracy, 0, -1

    def begin(self):
        self.values = [tf.placeholder(layer.dtype, layer.shape) for layer in self.w]
        self.put_back = [layer.assign(value) for layer, value in zip(self.w, self.values)]

    def after_run(self, context, values):
        self.runs += 1
        if self.runs % 25 == 0:
            accuracy, w = context.session.run([self.accuracy, self.w])
            if accuracy > self.best:
                self.best_w = w

    def end(self, session):
        session.run(self.put_back, dict(zip(self.values, self.best_w)))


# %% 2: the worst
class answer_2(tf.train.SessionRunHook):
    def __init__(self, w, accuracy):
        self.w, self.accuracy, self.runs, self.best = w, accuracy, 0, 2

    def begin(self):
        self.values = [tf.placeholder(layer.dtype, layer.shape) for layer in self.w]
        self.put_back = [layer.assign(value) for layer, value in zip(self.w, self.values)]

    def after_run(self, context, values):
        self.runs += 1
        if self.runs % 25 == 0:
            accuracy, w = context.session.run([self.accuracy, self.w])
            if accuracy < self.best:
                self.best, self.best_w = accuracy, w

    def end(self, session):
        session.run(self.put_back, dict(zip(self.values, self.best_w)))


# %% 2: it tests after each update
class answer_2(tf.train.SessionRunHook):
    def __init__(self, w, accuracy):
        self.w, self.accuracy, self.best = w, accuracy, -1

    def begin(self):
        self.values = [tf.placeholder(layer.dtype, layer.shape) for layer in self.w]
        self.put_back = [layer.assign(value) for layer, value in zip(self.w, self.values)]

    def after_run(self, context, values):
        accuracy, w = context.session.run([self.accuracy, self.w])
        if accuracy > self.best:
            self.best, self.best_w = accuracy, w

    def end(self, session):
        session.run(self.put_back, dict(zip(self.values, self.best_w)))


# %% 2: it puts back only the first layer
class answer_2(tf.train.SessionRunHook):
    def __init__(self, w, accuracy):
        self.w, self.accuracy, self.runs, self.best = w, accuracy, 0, -1

    def begin(self):
        self.value = tf.placeholder(tf.float32, self.w[0].shape)
        self.put_back = self.w[0].assign(self.value)

    def after_run(self, context, values):
        self.runs += 1
        if self.runs % 25 == 0:
            accuracy, w = context.session.run([self.accuracy, self.w[0]])
            if accuracy > self.best:
                self.best, self.best_w = accuracy, w

    def end(self, session):
        session.run(self.put_back, {self.value: self.best_w})
