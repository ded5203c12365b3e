"""Non-Distributed-Setup: w <- w - lr * g(w), in a single process."""

from tfrun.apps.references import HogWild, Synchronous

REFERENCE = HogWild  # which is plain SGD where nobody else pushes
FLAGS = {}
WORKERS = 1
COMPARED_BY = "tests/equations/test_one_process.py::test_a_run_is_the_equation"
PUSHED = "metrics.push(push_time, pull_time, number, loss)"
TESTED = "metrics.test(time.time(), number, "
END = "min(number + flags.updates_per_call, flags.steps, number"
RESTORED = "checkpoint.restore(manager.latest_checkpoint).assert_consumed()"
MISTAKES = {
    "parameters": {
        # To the first parameters: to all of w, the loss would soon be NaN.
        "the push adds": [("rate * g)", "rate * tf.concat([-g[:9], g[9:]], 0))")],
        "the rate is not the flag's": [
            ("w.assign_sub(flags.learning_rate * g)", "w.assign_sub(0.1 * g)")
        ],
        "the gradient is at another w": [("gradient(w, step)", "gradient(0.9 * w, step)")],
        "constant data": [("gradient(w, step)", "gradient(w, 0 * step)")],
        "the parameters begin again": [(RESTORED, f"{RESTORED}; w.assign(first)")],
    },
    "losses": {
        "a step follows its report": [
            ('tf.cast(loss, "float64")', 'tf.cast(gradient(w, number)[0], "float64")')
        ],
        "the batches of another worker": [
            (
                "model.non_trainable_variables, x, y, flags, 0)",
                "model.non_trainable_variables, x, y, flags, 1)",
            )
        ],
    },
    "steps": {
        "global_step is one too low": [(PUSHED, PUSHED.replace("number", "number - 1"))],
        "an update too many": [(END, END.replace("flags.steps", "flags.steps + 1"))],
        "an end only at a checkpoint": [(END, END.replace(" flags.steps,", ""))],
        "a run begins again": [(RESTORED, "pass")],
        "the count begins again": [("number, every = int(step)", "number, every = 0")],
    },
    "tests": {
        "of the rows of training": [
            ("evaluation(model, x_test, y_test)", "evaluation(model, x, y)")
        ],
        "a test's global_step is one too low": [(TESTED, TESTED.replace("number", "number - 1"))],
        "none at the end": [(" or number == flags.steps:", ":")],
    },
    "checkpoints": {
        "a name is that of the update before": [
            ("manager.save(number)", "manager.save(number - 1)")
        ],
        "six are kept": [("metrics.directory, 5,", "metrics.directory, 6,")],
    },
    "examples": {"one": [("{self.flags.batch_size}", "1")]},
    "times": {
        "each update of a call begins with it": [("            pull_time = push_time\n", "")],
        "before and after are swapped": [
            (PUSHED, PUSHED.replace("push_time, pull_time", "pull_time, push_time"))
        ],
    },
}
APP = {"reference": Synchronous, "n": 1}
