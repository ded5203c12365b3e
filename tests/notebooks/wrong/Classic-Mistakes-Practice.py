# %% 1: the sleep taken for a wait without a deadline
answer_1 = {"a": 19, "b": 21, "c": 20, "d": 17, "e": 17, "f": 24}

# %% 1: the lost session taken for a number that comes twice
answer_1 = {"a": 23, "b": 21, "c": 20, "d": 18, "e": 17, "f": 24}


# %% 2: only the names
def answer_2(path, variables):
    stored = dict(tf.train.list_variables(path))
    if any(variable.op.name not in stored for variable in variables):
        raise ValueError("another model")


# %% 2: only the shapes, in whatever order
def answer_2(path, variables):
    stored = [shape for _, shape in tf.train.list_variables(path)]
    if any(variable.shape.as_list() not in stored for variable in variables):
        raise ValueError("another model")


# %% 2: shapes as lists and TensorShapes are never equal
def answer_2(path, variables):
    stored = dict(tf.train.list_variables(path))
    for variable in variables:
        if str(stored.get(variable.op.name)) != str(variable.shape):
            raise ValueError("another model")


# %% project: nobody is killed
def answer_project(folder, updates):
    return [[0, 2, 4]], [[*range(1, updates, 2)]], [[*range(6, updates, 2)]], [*range(updates)]


# %% project: the tickets that the dead ps took with it count, too
def answer_project(folder, updates):
    chief = [[*range(0, 801, 2)], [*range(750, updates, 2)]]
    worker = [[*range(401, 802, 2)], [*range(751, updates, 2)]]
    killed = [[*range(1, 401, 2)]]
    return killed, chief, worker, sum(killed + chief + worker, [])


# %% 2: only the first variable
def answer_2(path, variables):
    stored = dict(tf.train.list_variables(path))
    if stored.get(variables[0].op.name) != variables[0].shape.as_list():
        raise ValueError("another model")


# %% 1: rows that two workers share taken for rows of the test
answer_1 = {"a": 19, "b": 22, "c": 20, "d": 18, "e": 17, "f": 24}

# %% 1: an old value taken for a fresh start
answer_1 = {"a": 19, "b": 21, "c": 19, "d": 18, "e": 17, "f": 24}

# %% 1: the slow steps taken for a wait
answer_1 = {"a": 19, "b": 21, "c": 20, "d": 18, "e": 17, "f": 18}

# %% 1: a list instead of a dictionary
answer_1 = [19, 21, 20, 18, 17, 24]


# %% 2: it returns what it finds, and raises nothing
def answer_2(path, variables):
    stored = dict(tf.train.list_variables(path))
    return all(stored.get(v.op.name) == v.shape.as_list() for v in variables)


# %% 2: it refuses each model
def answer_2(path, variables):
    raise ValueError("another model")


# %% 2: a name that is missing is another error
def answer_2(path, variables):
    stored = dict(tf.train.list_variables(path))
    if any(stored[variable.op.name] != variable.shape.as_list() for variable in variables):
        raise ValueError("another model")


# %% project: the tickets of the killed worker are forgotten
def answer_project(folder, updates):
    chief = [[*range(0, 801, 2)], [*range(750, updates, 2)]]
    worker = [[*range(401, 802, 2)], [*range(751, updates, 2)]]
    final = [ticket for ticket in chief[0] + worker[0] if ticket < 750] + chief[1] + worker[1]
    return [[*range(1, 401, 2)]], chief, worker, final


# %% project: no ticket at all
def answer_project(folder, updates):
    chief = [[*range(0, 801, 2)], [*range(750, updates, 2)]]
    worker = [[*range(401, 802, 2)], [*range(751, updates, 2)]]
    return [[*range(1, 401, 2)]], chief, worker, []


# %% project: it does not wait until the workers have finished
def answer_project(folder, updates):
    chief, worker = [[*range(0, 801, 2)], [750, 752]], [[*range(401, 802, 2)], [751, 753]]
    return [[*range(1, 401, 2)]], chief, worker, [*range(754)]


# %% project: right numbers, but nothing was trained
def answer_project(folder, updates):
    chief = [[*range(0, 801, 2)], [*range(750, updates, 2)]]
    worker = [[*range(401, 802, 2)], [*range(751, updates, 2)]]
    return [[*range(1, 401, 2)]], chief, worker, [*range(updates)]
