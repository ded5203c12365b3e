"""DOWNPOUR-Easy: a <- a + g(w_k), w_k <- w_k - lr * g(w_k), T times; w <- w - lr * a."""

from common.references import Easy

REFERENCE = Easy
FLAGS = {"local_steps": 4}
CACHE = (  # the parameters of the next push are read before this one's has arrived
    """    with tf.control_dependencies([version]):
        pulled = [v.read_value() for v in w]
""",
    """    kept = [tf.get_local_variable(v.op.name + "_c", initializer=v.read_value()) for v in w]
    with tf.control_dependencies([version]):
        pulled = [tf.identity(v.read_value()) for v in kept]
""",
)
CACHED = (
    "    with tf.control_dependencies([ticket]):\n",
    """    with tf.control_dependencies([ticket]):
        news = [tf.identity(v.read_value()) for v in w]
    with tf.control_dependencies(news):
        cached = tf.group(*[k.assign(v) for k, v in zip(kept, news)])
    with tf.control_dependencies([cached]):
""",
)
PUSH = "flags.learning_rate * s"
RANK = 'json.loads(os.environ["TF_CONFIG"])["task"]["index"]'
MISTAKES = {
    "parameters": {
        "a pull that is not ordered after the push": [CACHE, CACHED],
        "one forward pass for all T steps": [
            ("w_k = [v - flags.learning_rate * d for v, d in zip(w_k, g)]", "")
        ],
        "one mini-batch for all T steps": [("first + t)", "first)")],
        "no last local step": [("t < flags.local_steps", "t < flags.local_steps - 1")],
        "the mean instead of the sum": [(PUSH, PUSH + " / flags.local_steps")],
        "the rate counts twice in the push": [(PUSH, "flags.learning_rate * " + PUSH)],
        "a rate that is the worker's index": [(PUSH, PUSH + " * " + RANK)],
    }
}
