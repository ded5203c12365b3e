"""A Keras optimizer of one's own, in the place where an algorithm has its step.

A script says by OPTIMIZER where that place is:

    "ps"     the step of a ps, on its part of w: what would be w <- w - lr * g
    "local"  each worker's own step, on its own w_k: what would be w_k <- w_k - lr * g
    "mean"   the step of all workers, by the mean of their gradients, each on its own copy of w
    "shard"  the same, but each worker moves only its shard of each block
    "whole"  the same, by an optimizer that the script itself makes, for w as one vector

What the optimizer keeps, its slots, lies where w lies and is saved with it. On a ps a slot is a
vector beside the part of w, and the count of updates is the ticket. On a worker, slots are
variables of the model that are not trained, so they are in every checkpoint that it is in.
"""

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

# Why a place cannot have what needs a whole variable, its shape or its name.
WHY = {
    "ps": "a ps has only a part of w",
    "shard": "a worker moves only its shard of w",
    "whole": "this example has w as one vector",
}
NORMS = ("clipnorm", "global_clipnorm")  # these need all of w, or all of a variable
PROBE_STEPS, PROBE_SIZE, PROBE_RATE = 3, 6, 0.1


class Step:
    """Makes steps of a Keras optimizer on variables of one process."""

    def __init__(self, optimizer: Any, variables: list[Any]) -> None:
        """variables: what it moves, of TensorFlow or Keras."""
        if not isinstance(optimizer, keras.optimizers.Optimizer):
            kind = type(optimizer).__name__
            raise ValueError(f"make_optimizer returns no optimizer of Keras, but {kind}")
        self.name = type(optimizer).__name__
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            raise ValueError(f"make_optimizer returns a {self.name}: gradients are float32 here")
        if optimizer.gradient_accumulation_steps:
            raise ValueError(
                f"{self.name} has gradient_accumulation_steps: use the flag --accumulate"
            )
        # Keras's forms for TensorFlow sum gradients over the replicas of a tf.distribute.Strategy;
        # here the algorithm has done that. The general forms move each variable where it is.
        general = keras.src.optimizers.base_optimizer.BaseOptimizer
        special = keras.src.backend.tensorflow.optimizer.TFOptimizer
        for method in (
            *("_backend_update_step", "_apply_weight_decay"),
            "_overwrite_model_variables_with_average_value",
        ):
            if getattr(type(optimizer), method) is getattr(special, method):
                setattr(optimizer, method, types.MethodType(getattr(general, method), optimizer))
        optimizer.build(variables)
        self.optimizer, self.variables = optimizer, variables
        self.slots = [v.value for v in optimizer.variables]
        # Not the path: it has the optimizer's own name, adam_2 for the third one of a process.
        self.names = [v.name.replace("/", "_") for v in optimizer.variables]

    def needs_variable(self, slot: tf.Variable) -> bool:
        """Returns whether a ps must keep a slot: not the count of updates, nor a fixed rate."""
        rate = getattr(self.optimizer, "_learning_rate", None)
        others = [v for v in (self.optimizer.iterations, rate) if isinstance(v, keras.Variable)]
        return all(slot is not other.value for other in others)

    def apply(self, g: list[Any], after: list[Any]) -> list[tf.Tensor]:
        """Moves the variables by the gradients g, after some tensors; returns what they are then.

        When a value is there, all slots are written.
        """
        with tf.control_dependencies(after):
            self.optimizer.apply(g, self.variables)
            slots = [v.read_value() for v in self.slots]
        with tf.control_dependencies(slots):
            return [tf.convert_to_tensor(v) for v in self.variables]


# On a ps ------------------------------------------------------------------------------------------


def refuse_what_needs_all(make_optimizer: Callable[[], Any], place: str = "ps") -> None:
    """Raises ValueError for an optimizer that moves parts of w otherwise than the whole w.

    place: one of WHY, where w is flat: no norm of a whole variable, no shape and no name.
    """
    optimizer, why = make_optimizer(), WHY[place]
    advice = "take an example such as Collective-AllReduce, or one whose workers step alone"
    name = type(optimizer).__name__
    for norm in NORMS:
        if getattr(optimizer, norm, None):
            raise ValueError(f"{name} has {norm}, and {why}: {advice}")
    if getattr(optimizer, "_exclude_from_weight_decay_pattern", None):
        raise ValueError(f"{name} has exclude_from_weight_decay, and {why}: {advice}")
    random = np.random.default_rng(0)
    start = random.normal(size=PROBE_SIZE)
    gradients = random.normal(size=(PROBE_STEPS, PROBE_SIZE)) * 10.0 ** np.arange(PROBE_SIZE)
    half = PROBE_SIZE // 2

    def moved(begin: int, end: int, shape: tuple[Any, ...] = (-1,)) -> np.ndarray:
        w = keras.Variable(start[begin:end].reshape(shape), dtype="float32")
        step = Step(make_optimizer(), [w])
        step.optimizer._learning_rate = PROBE_RATE  # a schedule may begin too low to move w
        for g in gradients:
            step.apply([tf.constant(g[begin:end].reshape(shape), "float32")], [])
        return w.numpy().ravel() - start[begin:end]

    whole, matrix = moved(0, PROBE_SIZE), moved(0, PROBE_SIZE, (half, -1))
    parts = np.concatenate([moved(0, half), moved(half, PROBE_SIZE)])
    for others in parts, matrix:
        if not np.allclose(whole, others, rtol=1e-4, atol=1e-6):
            raise ValueError(f"{name} needs all of w in its shapes, and {why}: {advice}")


class PsPart:
    """Stands for w in server(): what is subtracted from it becomes a step of the optimizer."""

    def __init__(self, w: tf.Variable, rate: float, optimizer: Any, lock: Any) -> None:
        """rate: the learning rate by which the script has multiplied a gradient.

        lock: a tf.CriticalSection; None if the script already runs its pushes one at a time.
        """
        self.w, self.rate, self.shape, self.dtype = w, rate, w.shape, w.dtype
        self.read_value = w.read_value
        self.count: Any = None  # of updates before the call that is being traced
        self.lock = lock  # w and its slots move together
        self.step = Step(optimizer, [w])
        self.slots = {}
        for name, slot in zip(self.step.names, self.step.slots):
            if self.step.needs_variable(slot):
                self.slots[f"optimizer_{name}"] = slot
                if slot.shape != w.shape:
                    raise ValueError(f"{self.step.name} keeps {name}, which is no vector like w")

    def __tf_tensor__(self, dtype: Any = None, name: Any = None) -> tf.Tensor:
        return tf.convert_to_tensor(self.w, dtype, name=name)

    def assign_sub(self, delta: tf.Tensor) -> tf.Tensor:
        """Moves w by the gradient delta / rate. Returns a tensor that is there when it is done."""

        def move() -> tf.Tensor:
            iterations = self.step.optimizer.iterations.value
            counted = iterations.assign(tf.cast(self.count, iterations.dtype))
            moved = self.step.apply([delta / self.rate], [counted])
            with tf.control_dependencies(moved):
                return tf.identity(self.count)

        with tf.control_dependencies([delta]):
            return self.lock.execute(move) if self.lock else move()


class CountedStep:
    """Stands for the step of server(), and tells a PsPart each ticket that it takes."""

    def __init__(self, step: Any, part: PsPart) -> None:
        self._step, self._part = step, part

    def __getattr__(self, name: str) -> Any:
        return getattr(self._step, name)

    def take(self) -> tf.Tensor:
        self._part.count = self._step.take()
        return self._part.count


def server_with(
    make_optimizer: Callable[[], Any], server: Callable[..., Any]
) -> Callable[..., Any]:
    """Returns server(), in which a step of the optimizer takes the place of a subtraction."""

    @functools.wraps(server)
    def wrapped(*arguments: Any) -> Any:
        *n, w, step, flags = arguments
        if getattr(flags, "warmup_steps", 0):
            raise ValueError("--warmup-steps has no effect here: give your optimizer a schedule")
        names = inspect.unwrap(server).__code__.co_names
        has_lock = "CriticalSection" in names or "steps_together" in names
        # Unnamed CriticalSections share one lock, and a push that enters it twice would deadlock.
        lock = None if has_lock else tf.CriticalSection(shared_name="optimizer")
        part = PsPart(w, flags.learning_rate, make_optimizer(), lock)
        functions, beside = server(*n, part, CountedStep(step, part), flags)
        return functions, beside | part.slots

    return wrapped


def counted(steps_together: Callable[..., Any]) -> Callable[..., Any]:
    """Returns steps_together(), where a PsPart learns the number of the step that it makes."""

    def wrapped(w: PsPart, step: Any, backups: int, move: Callable[..., Any]) -> Any:
        def move_counted(steps: tf.Tensor, N: tf.Tensor, g: tf.Tensor) -> Any:
            w.count = steps
            return move(steps, N, g)

        return steps_together(w.w, step, backups, move_counted)

    return wrapped


# On a worker --------------------------------------------------------------------------------------


class Slots(keras.layers.Layer):
    """Holds what an optimizer keeps, as variables of a model; what it is given, it returns."""

    def __init__(self, step: Step) -> None:
        super().__init__(dtype="float32", name="optimizer")
        self.slots = step.optimizer.variables

    def call(self, x: Any) -> Any:
        return x


class WithSlots:
    """What a worker needs for steps of the optimizer: the model without slots, and the Step."""

    def __init__(self, optimizer: Any, model: Any) -> None:
        self.trained, self.step = model, Step(optimizer, model.trainable_variables)
        self.layer = Slots(self.step)

    def model(self, x: Any) -> Any:
        """Returns the model with the slots in it. x: a keras.Input of the model."""
        model = keras.Model(x, self.layer(self.trained(x)))
        model.__dict__["with_slots"] = self
        return model

    def divide(self, model: Any, state: list[Any]) -> tuple[list[Any], list[tf.Variable]]:
        """Returns (the state of the model without slots, the slots), from that of the model."""
        of = {id(v): value for v, value in zip(model.non_trainable_variables, state)}
        plain, slots = (
            [of[id(v)] for v in part.non_trainable_variables] for part in (self.trained, self.layer)
        )
        return plain, [v.value if isinstance(v, keras.Variable) else v for v in slots]


class OwnStep:
    """Makes the steps of a worker: of its own w_k, or of w by the mean of all gradients.

    The variables of the model are what the optimizer moves, so it sees their shapes and names.
    """

    def __init__(self, step: Step, slots: list[tf.Variable], rate: float) -> None:
        """slots: where the script keeps the slots, which it saves. rate: its learning rate."""
        self.step, self.slots, self.rate = step, slots, rate

    def apart(self, w: Any) -> list[tf.Tensor]:
        """Returns the variables in their shapes, from one vector, or from a list of them."""
        if isinstance(w, list):
            return [tf.convert_to_tensor(v) for v in w]
        shapes = [v.shape for v in self.step.variables]
        parts = tf.split(w, [int(np.prod(shape)) for shape in shapes])
        return [tf.reshape(part, shape) for part, shape in zip(parts, shapes)]

    def move(self, w: Any, g: Any) -> list[tf.Tensor]:
        """Returns the variables after a step from w by g. When they are there, so are the slots."""
        values, g = self.apart(w), self.apart(g)
        with tf.control_dependencies([*values, *g]):  # after the step before, in a loop
            for v, value in zip(self.step.variables, values):
                v.assign(value)
            for own, kept in zip(self.step.slots, self.slots):
                if own is not kept:
                    own.assign(kept.read_value())
            moved = self.step.apply(g, [])
        with tf.control_dependencies(moved):
            written = [
                kept.assign(own.read_value())
                for own, kept in zip(self.step.slots, self.slots)
                if own is not kept
            ]
        with tf.control_dependencies(written):
            return [tf.identity(v) for v in moved]

    def direction(self, w: Any, g: Any) -> Any:
        """Returns what the script subtracts rate times, for a step of the optimizer."""
        moved = self.move(w, g)
        if isinstance(g, list):
            return [(v - new) / self.rate for v, new in zip(self.apart(w), moved)]
        return (w - tf.concat([tf.reshape(v, [-1]) for v in moved], 0)) / self.rate


class MovedVector:
    """Stands for w in algorithm(): what is subtracted from it becomes a step of the optimizer."""

    def __init__(self, w: tf.Variable, own: OwnStep) -> None:
        self.w, self.own, self.shape, self.dtype, self.device = w, own, w.shape, w.dtype, w.device
        self.read_value = w.read_value

    def __tf_tensor__(self, dtype: Any = None, name: Any = None) -> tf.Tensor:
        return tf.convert_to_tensor(self.w, dtype, name=name)

    def assign_sub(self, delta: tf.Tensor) -> tf.Tensor:
        """Moves w by the gradient delta / rate; returns w after it."""
        moved = self.own.move(self.w.read_value(), delta / self.own.rate)
        return self.w.assign(tf.concat([tf.reshape(v, [-1]) for v in moved], 0))


class MovedList(list[Any]):
    """Stands for a list of variables: when something was subtracted from each, all make a step."""

    def __init__(self, w: list[Any], own: OwnStep) -> None:
        super().__init__(MovedVariable(v, self) for v in w)
        self.own = own
        self.deltas: dict[int, tf.Tensor] = {}

    def subtract(self, of: "MovedVariable", delta: tf.Tensor) -> None:
        """Notes what is subtracted from a variable; the last one moves all."""
        self.deltas[id(of)] = delta / self.own.rate
        if len(self.deltas) == len(self):
            variables = [part.v for part in self]
            moved = self.own.move(variables, [self.deltas[id(part)] for part in self])
            for v, new in zip(variables, moved):
                v.assign(new)


class MovedVariable:
    """Stands for a variable of a MovedList."""

    def __init__(self, v: Any, all_of_them: MovedList) -> None:
        self.v, self.all = v, all_of_them

    def __tf_tensor__(self, dtype: Any = None, name: Any = None) -> tf.Tensor:
        return tf.convert_to_tensor(self.v, dtype, name=name)

    def assign_sub(self, delta: tf.Tensor) -> None:
        self.all.subtract(self, delta)


def algorithm_with(algorithm: Callable[..., Any]) -> Callable[..., Any]:
    """Returns algorithm(), in which a step of the optimizer takes the place of a subtraction."""

    def wrapped(w: Any, step: Any, gradient: Any, *others: Any) -> Any:
        own = (gradient[0] if isinstance(gradient, list) else gradient).own
        stand_in = MovedVector(w, own) if hasattr(w, "assign_sub") else MovedList(list(w), own)
        return algorithm(stand_in, step, gradient, *others)

    return wrapped


def gradients_with(place: str, gradients: Callable[..., Any]) -> Callable[..., Any]:
    """Returns gradients(): of what is trained, and for "local" in the optimizer's direction."""

    def wrapped(
        model: Any, state: list[Any], x: Any, y: Any, flags: Any, rank: int
    ) -> Callable[..., Any]:
        with_slots = model.__dict__["with_slots"]
        plain_state, slots = with_slots.divide(model, state)
        gradient = gradients(with_slots.trained, plain_state, x, y, flags, rank)
        own = OwnStep(with_slots.step, slots, flags.learning_rate)

        def direction(w: Any, number: tf.Tensor) -> tuple[Any, ...]:
            loss, g = gradient(w, number)
            return loss, own.direction(w, g)

        def at_variable(w: Any, number: tf.Tensor, *watch: Any) -> tuple[Any, ...]:
            return gradient(w.w if isinstance(w, MovedVector) else w, number, *watch)

        result = direction if place == "local" else at_variable
        setattr(result, "own", own)  # noqa: B010 - what algorithm_with() asks for
        return result

    return wrapped


# Instead of the optimizer that a script has ------------------------------------------------------


def optimizer_of_whole(make_optimizer: Callable[[], Any]) -> Callable[[Any], Any]:
    """Returns what takes the place of a script's make_optimizer(flags)."""

    def make(flags: Any) -> Any:
        refuse_what_needs_all(make_optimizer, "whole")  # not before the script has chosen its GPU
        return make_optimizer()

    return make


def adam_of_shards(make_optimizer: Callable[[], Any]) -> Callable[..., None]:
    """Returns what takes the place of Block.adam: a step of the optimizer on a worker's shards.

    What the optimizer keeps lies in the block's m and v, which every checkpoint has. Raises
    ValueError for more than two such vectors.
    """

    def adam(block: Any, t: int, flags: Any) -> None:
        w = block.shard(block.w) if block.stage in (1, 2) else block.w
        if not w.size:
            return
        if not hasattr(block, "own"):  # not before: the script first configures TensorFlow
            refuse_what_needs_all(make_optimizer, "shard")
            variable = tf.Variable(w)
            step = Step(make_optimizer(), [variable])
            slots = [slot for slot in step.slots if step.needs_variable(slot)]
            if len(slots) > 2 or any(slot.shape != variable.shape for slot in slots):
                raise ValueError(
                    f"{step.name} keeps more than a block can save: at most two vectors like w"
                )
            block.own = variable, step, slots
        variable, step, slots = block.own
        variable.assign(w)
        iterations = step.optimizer.iterations.value
        iterations.assign(tf.cast(t - 1, iterations.dtype))
        if t > 1:  # before the first step they have what the optimizer begins with
            for slot, kept in zip(slots, (block.m, block.v)):
                slot.assign(kept)
        step.apply([tf.constant(block.g)], [])
        w[:] = variable.numpy()
        kept = [slot.numpy() for slot in slots] + [block.m, block.v][len(slots) :]
        block.m, block.v = kept

    return adam


def adagrad(w: PsPart, h: tf.Variable, a: tf.Tensor, flags: Any) -> tf.Tensor:
    """Takes the place of a step of Adagrad on a ps, by the sum of gradients a; h stays as it is."""
    return w.assign_sub(a * w.rate)


def adamw_steps(
    w_k: tf.Tensor,
    m: Any,
    v: Any,
    before: Any,
    first: Any,
    gradient: Callable[..., Any],
    flags: Any,
) -> tuple[Any, ...]:
    """Takes the place of T steps of AdamW on a worker; m and v stay as they are."""

    def local_step(t: Any, _: Any, w_k: tf.Tensor) -> tuple[Any, ...]:
        loss, direction = gradient(w_k, first + t)
        return t + 1, loss, w_k - flags.learning_rate * direction

    start = [np.int64(0), 0.0, w_k]
    T, loss, w_k = tf.while_loop(lambda t, *_: t < flags.local_steps, local_step, start)
    return loss, w_k, m, v, before + T
