"""A recommender with two inputs: which rating will this user give to that item?

Each user and each item has a row in a table. A tower of layers reads each row, and the product of
both towers is the rating.
"""

import collections

import keras
import numpy as np

# region: problem -- put your own data and model here
Data = collections.namedtuple("Data", "x_train y_train x_test y_test")
DATASET, DATASETS = "law", "law (ratings that a formula makes), or a CSV file: user,item,rating"


def load_data(name):
    """Returns {"user": [rows], "item": [rows]}, numbered from 0, and ratings [rows, 1]."""
    if name == "law":
        # Everyone has a taste and every item a character, three numbers each. Where they agree,
        # the rating is above 3; their product has the deviation 1, and the noise 0.3.
        random = np.random.RandomState(0)
        taste, character = random.normal(size=(100, 3)), random.normal(size=(60, 3))
        user, item = random.randint(100, size=6000), random.randint(60, size=6000)
        rating = 3 + (taste[user] * character[item]).sum(axis=1) / np.sqrt(3)
        rating += random.normal(scale=0.3, size=len(rating))
    else:
        table = np.loadtxt(name, delimiter=",", skiprows=1)
        user, item = (np.unique(column, return_inverse=True)[1] for column in table[:, :2].T)
        rating = table[:, 2]
    test = np.random.RandomState(1).rand(len(rating)) < 0.1
    rows = [{"user": user[part], "item": item[part]} for part in (~test, test)]
    return Data(rows[0], rating[~test, None], rows[1], rating[test, None])


def tower(rows, size):
    """Returns the input of a table with so many rows, and what its layers make of a row."""
    number = keras.Input((), dtype="int32", name=rows)
    first = keras.initializers.RandomNormal(stddev=0.1)
    vector = keras.layers.Embedding(size, 8, first)(number)
    # A row learns only when its user or item is drawn: 4 times as large, it moves 16 times as far.
    vector = keras.layers.Rescaling(4.0)(vector)
    return number, keras.layers.Dense(8)(keras.layers.Dense(16, "relu")(vector))


def make_model(data):
    """Makes two towers, whose product is how far a rating is from the mean of all."""
    sizes = {name: int(data.x_train[name].max()) + 1 for name in ("user", "item")}
    (user, taste), (item, character) = (tower(name, size) for name, size in sizes.items())
    agreement = keras.layers.Dot(axes=1)([taste, character])
    rating = keras.layers.Rescaling(1.0, offset=float(data.y_train.mean()))(agreement)
    return keras.Model({"user": user, "item": item}, rating)


def loss(y, outputs):
    """Returns the squared error of each row."""
    return keras.losses.mean_squared_error(y, outputs)


# name: ("max" or "min" for which is better, the metric of each row)
METRICS = {"absolute_error": ("min", keras.losses.mean_absolute_error)}
# endregion: problem
