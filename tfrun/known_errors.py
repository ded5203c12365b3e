"""The table of known errors: what each means, and what to do. errors.py looks into it.

The page on troubleshooting is made from this table by lab/pages/readmes.py --fix. Before it stand
the known lines that are no errors: tfrun does not show them.
"""

import collections
import re

# pattern: a regular expression that finds the error in a line of output; example: such a line, as
# Python or TensorFlow prints it; means and do: plain text, a sentence or two each.
Entry = collections.namedtuple("Entry", "pattern example means do")

# What TensorFlow prints at every start and no setting removes. The logs keep it.
NOTICE = re.compile(
    rb"""
    WARNING:\ All\ log\ messages\ before\ absl::InitializeLog\(\)\ is\ called
  | .*oneDNN\ custom\ operations\ are\ on
  | .*Could\ not\ find\ cuda\ drivers\ on\ your\ machine
  | .*This\ TensorFlow\ binary\ is\ optimized\ to\ use\ available\ CPU
  | To\ enable\ the\ following\ instructions:.*rebuild\ TensorFlow
  | .*Unable\ to\ register\ cu(DNN|FFT|BLAS)\ factory
  | .*computation_placer\ already\ registered
  | .*failed\ call\ to\ cuInit
  | .*TF-TRT\ Warning
""",
    re.VERBOSE,
)
# What horovodrun, its shells and its library say of a failure, where tfrun says one line.
AFTERMATH = re.compile(
    rb"""
    Traceback\ \(most\ recent\ call\ last\)
  | \ \ .*  # of the traceback
  | RuntimeError:\ Horovod\ detected
  | Process\ name:
  | Exit\ code:
  | Terminating\ remaining\ workers
  | (Killed|Terminated)$
  | \[\d{4}-.*\ Horovod\ background\ loop\ uncaught\ exception
  | .*resource_tracker:
  | $
""",
    re.VERBOSE,
)
SSH = {  # what ssh says of a host, and what it means and what to do; {0}: the host
    "Could not resolve": "ssh does not know this name: correct it in --hosts or in /etc/hosts",
    "Permission denied": "it does not accept your key: give it one that needs no prompt, "
    "by ssh-copy-id {0}",
    "Host key verification failed": "its host key is not the one that is known here: "
    "connect once by hand, ssh {0}",
    "Connection refused": "no sshd listens there: start it, or name its port in ~/.ssh/config",
    r"timed out|No route to host|[Uu]nreachable": "it cannot be reached: is it on, and does the "
    "firewall let ssh through?",
}

# {symptom: its entries}; where several entries know a line, the first explains it.
GROUPS: dict[str, list[Entry]] = {}


def group(symptom: str, *entries: tuple[str, str, str, str]) -> None:
    """Adds entries, each (pattern, example, means, do), under a heading of the page."""
    GROUPS[symptom] = [Entry(re.compile(entry[0]), *entry[1:]) for entry in entries]


group(
    "It ends at once: a flag",
    (
        r"^\S+\.py: error: "
        r"|--rho must be below 1"
        r"|--learning-rates: each must|could not convert string to float: '"
        r"|is neither gpipe nor 1f1b|--buckets must be 1"
        r"|is no stage of ZeRO"
        r"|is too short: ten paragraphs",
        "hogwild.py: error: argument --steps: must be above 0, below 2^31",
        "A flag is missing, unknown or shortened, or has a value that the script cannot use.",
        "Correct it: `--help` lists the flags and their defaults.",
    ),
    (
        r"--backup-workers must be below",
        "ValueError: --backup-workers must be below the number of workers, 2",
        "A step needs the gradient of one worker at least.",
        "Give fewer, or start more workers (WORKERS=4 bash run.sh).",
    ),
    (
        r"--compress must be one of|ValueError: kth\(=-?\d+\) out of bounds",
        "ValueError: --compress must be one of ['power', 'top-k', 'sign', 'qsgd'], and --levels "
        "at most 127: int8",
        "An entry must fit int8, and --top is a share.",
        "Take one of the four compressors, a --top from 0 to 1, and --levels of at most 127.",
    ),
    (
        r"cannot be cut into \d+ equal parts|Number of ways to split should evenly divide",
        "ValueError: --batch-size 32 cannot be cut into 5 equal parts (--micro-batches)",
        "The parts of a mini-batch must be equal.",
        "Choose a number that divides --batch-size.",
    ),
    (
        r"layers, too few for \d+",
        "ValueError: The model has 3 layers, too few for 4 places",
        "Each device needs a layer; one that takes a mask stays with the one before it.",
        "Use fewer workers or --devices, or a model with more layers.",
    ),
    (
        r"at least, and at most one ps",
        "ValueError: Gradients-To-All needs two workers at least, and at most one ps",
        "One worker has no other worker to send gradients to. Two ps would forward the gradients "
        "in two different orders.",
        "Start more workers (WORKERS=4), and PS=1 or none.",
    ),
    (
        r"needs an even number of workers|needs two workers at least",
        "ValueError: Gossip-SGD needs an even number of workers, and has 3",
        "Every second worker is active and averages with a passive one.",
        "Start an even number (WORKERS=4), or take D-PSGD.",
    ),
    (
        r"is for one worker",
        "ValueError: This script is for one worker: HogWild/hogwild.py is for several",
        "The algorithm has one worker.",
        "Start one (WORKERS=1), or take an example for several.",
    ),
)

group(
    "It ends at once: the model",
    (
        r"resource: Attempting to capture an EagerTensor",
        "resource: Attempting to capture an EagerTensor without building a function.",
        "The loss or a layer creates a variable that the model does not own.",
        "Write the loss without variables, and create a layer's in its build().",
    ),
    (
        r"Attempting to capture an EagerTensor",
        "my: Attempting to capture an EagerTensor without building a function.",
        "A tensor that was made between the layers belongs to no graph.",
        "Make it with NumPy, or in the call() of a layer.",
    ),
    (
        r"Collective ops must be configured at program startup|Virtual devices cannot be modified",
        "RuntimeError: Collective ops must be configured at program startup",
        "`load_data` has used TensorFlow, which this script must start itself.",
        "Use NumPy there, or take an example that runs on one device.",
    ),
    (
        r"To call stateless_call, \w+ must be built|: need at least one array to concatenate",
        "ValueError: To call stateless_call, Sequential must be built",
        "The model does not know the shape of its input.",
        "Begin it with keras.Input(data.x_train.shape[1:]).",
    ),
    (
        r"METRICS needs .*, not \('(max|min)', ",
        'ValueError: METRICS needs ("max" or "min", function), not (\'max\', '
        "<SparseCategoricalAccuracy",
        "METRICS has an object of Keras, where it needs a function.",
        "Write keras.metrics.sparse_categorical_accuracy, for example.",
    ),
    (
        r'METRICS needs |neither "max" nor "min"'
        r"|cannot unpack non-iterable \w+ object",
        'ValueError: METRICS needs ("max" or "min", function), not (\'maximum\', <function mae>)',
        'An entry of METRICS is not a pair of "max" or "min" and a function.',
        'Write "name": ("max", function), or "min". Write "max" if higher is better.',
    ),
    (
        r"an RNN is stateful|is stateful, and mini-batches",
        "If an RNN is stateful, the batch size of the input sequences must be the same as the "
        "batch size of the initial state.",
        "A stateful layer continues the rows of the batch before, but mini-batches are drawn at "
        "random.",
        "Make the layer without stateful=True, and put whole sequences into a row.",
    ),
    (
        r"an output has whole numbers above",
        "InvalidArgumentError: an output has whole numbers above 16777216, and there are several "
        "outputs",
        "Several outputs travel as one matrix of float32, which would round them.",
        "Return only what the loss needs.",
    ),
    (
        r"that don't all match",
        "TypeError: Tensors in list passed to 'values' of 'ConcatV2' Op have types [float32, "
        "float16] that don't all match.",
        "The variables have several types of number, but w is one vector.",
        "Give all layers the same dtype; a mixed policy does.",
    ),
    (
        r"has no make_model\(\)",
        "tfrun: sparse_embeddings.py has no make_model()",
        "`tfrun evaluate` and `tfrun export` need a Keras model.",
        "Read the chief's own tests, in its `metrics-<task>.csv`.",
    ),
    (
        r"A model that is not Sequential",
        "TypeError: A model that is not Sequential needs stages() of its own",
        "The script can cut only a plain chain of layers into parts.",
        "Build the model as keras.Sequential, or write stages() in the script for yours.",
    ),
)

group(
    "It ends at once: TF_CONFIG",
    (
        r"JSONDecodeError",
        "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes",
        "TF_CONFIG, or a file, is not valid JSON.",
        "Use double quotes in JSON; in a shell, put single quotes around the whole value.",
    ),
    (
        r"TF_CONFIG.*://|Could not (parse port|interpret) .*://|(answer|answered) at \w+://"
        r"|Could not parse port|not enough values to unpack \(expected 2, got 1\)",
        "ValueError: the addresses in TF_CONFIG are host:port, without grpc://",
        "An address in TF_CONFIG has no port, or begins with a scheme such as grpc://.",
        "Write host:port.",
    ),
    (
        r"TF_CONFIG.*(twice|same address|same port)|unknown device|CreateContext failed",
        "ValueError: TF_CONFIG has the address 127.0.0.1:2222 twice",
        "Two tasks have one address.",
        "Give each task on a machine a port of its own.",
    ),
    (
        r"no server can listen at",
        "OSError: no server can listen at 10.0.0.7:2222: Cannot assign requested address",
        "This machine does not have the address that TF_CONFIG gives this ps, or may not use it.",
        "Check the index of the task. Where others reach it by an address that it does not have "
        "itself, set PS_ADDRESS=0.0.0.0:PORT for the ps.",
    ),
    (
        r"Cannot assign requested address|Name or service not known|nodename nor servname provided",
        "socket.gaierror: [Errno -2] Name or service not known",
        "A host name in TF_CONFIG is not known, or this machine does not have this task's address.",
        "Check the names, their order and the index of the task.",
    ),
    (
        r"another script, TF_CONFIG, flags|Mismatched (all|broad|reduce|data types)",
        "ConnectionError: worker 1 has another script, TF_CONFIG, flags or model than worker 0",
        "The workers do not agree on the script, cluster, flags, model or type of the data.",
        "Start all alike, each at an address of its own.",
    ),
    (
        r"\('evaluator', \d+\) is not in list|is no evaluator: run",
        "ValueError: ('evaluator', 0) is not in list",
        "The script only trains.",
        "Start `tfrun evaluate DIR --follow` as that task, or all tasks with `tfrun --evaluator`.",
    ),
    (
        r"types of tasks are|TF_CONFIG names a task of type '"
        r"|\('(?!chief|worker|ps)\w+', \d+\) is not in list",
        "ValueError: TF_CONFIG names a task of type 'boss'",
        "The scripts do not know this type of task.",
        "Rename it in every TF_CONFIG: a ps holds the parameters, a worker trains, a chief also "
        "saves.",
    ),
    (
        r"was not defined in (job|cluster)|No such job in cluster|No task with index"
        r"|\(.*\) is not in list|KeyError: '(TF_CONFIG|cluster|task|type|index|ps|worker|chief)'"
        r"|Error: The tasks for job|.*Error: .*TF_CONFIG|^TF_CONFIG ",
        'InternalError: Task 9 was not defined in job "worker"',
        "TF_CONFIG is not set, lacks a part, or its task is not in its cluster.",
        'Use `bash run.sh`, or set it like {"cluster": {"ps": ["host:port"], "worker": '
        '["host:port"]}, "task": {"type": "worker", "index": 0}}.',
    ),
)

group(
    "It cannot start, or waits for another task in vain",
    (
        r"Could not start gRPC server|Address already in use|Failed to add port to server"
        r"|another server listens at",
        "UnknownError: Could not start gRPC server",
        "Another program listens at the port that TF_CONFIG gives this task.",
        "Choose a free port, or let tfrun choose; `ss -ltnp` shows who has it.",
    ),
    (
        r"HTTP proxy returned response code",
        "UnavailableError: failed to connect to all addresses; last error: UNKNOWN: HTTP proxy "
        "returned response code 403",
        "A proxy, by grpc_proxy or http_proxy, stands between the tasks.",
        "Unset it, as tfrun does: `export grpc_proxy=`.",
    ),
    (
        r"chief made no model",
        "TimeoutError: the chief made no model in 120 s",
        "The chief, which makes the parameters, did not start, or has failed.",
        "Look into its log: it is worker 0 where no task has the type chief.",
    ),
    (
        r"the ps have another model",
        "ValueError: the ps have another model: [['w', 'float32', 17226]], not [['w', 'float32', "
        "9610]]",
        "This task makes another model than the chief, whose model the ps have.",
        "Start all tasks with the same script, flags, data and OUTPUT_DIR.",
    ),
    (
        r"No such file or directory: '.*flags\.json'|Couldn't find 'checkpoint' file",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/run/flags.json'",
        "A ps does not share OUTPUT_DIR with the chief, or this file is gone.",
        "Set OUTPUT_DIR of all tasks to one shared folder, or begin in a new one.",
    ),
    (
        r"no gradient of|No step was made in",
        "TimeoutError: no gradient of worker 2 came in 15 s",
        "A synchronous step waits for that worker, which is slow or gone.",
        "Look into its log; raise --step-timeout, or allow --backup-workers.",
    ),
    (
        r"it is silent, or waits itself|it closed the connection|lost (the|its) \w+ neighbour"
        r"|(left|right) neighbour:",
        "ConnectionError: worker 1, the right neighbour: it closed the connection",
        "The ring is broken: a neighbour has failed, hangs, or cannot be reached.",
        "Look into its log. The same command goes on from the last checkpoint.",
    ),
    (
        r"(chief|worker|ps) \d+ was lost, or did not answer in time|the call is of another run",
        "ConnectionError: worker 1 was lost, or did not answer in time: gradients would be missing "
        "there",
        "A gradient has not reached all workers, because the named task has failed, hangs, or "
        "cannot be reached.",
        "Look into its log; raise --step-timeout if it is slow. The same command goes on from the "
        "last checkpoint.",
    ),
    (
        r"no ps answered in",
        "TimeoutError: no ps answered in 120 s",
        "A ps was lost and did not come back, or hangs.",
        "Look into the logs of all ps. The same command goes on from the last checkpoint; "
        "`tfrun --restarts 3` does so by itself.",
    ),
    (
        r"(?<!ConnectionError: )ps \d+ (did|does) not answer|no ps answered at"
        r"|(worker|chief) \d+ did not answer",
        "TimeoutError: no ps answered at 127.0.0.1:9 in 120 s",
        "That task did not start, has failed, hangs, or cannot be reached.",
        "Look into its log, and at its address in TF_CONFIG and the firewall. "
        "`ip link set lo up` starts the loopback.",
    ),
)

group(
    "The data",
    (
        r"has other data than",
        "worker 1 has other data than worker 0: x_train has 1,737 rows, not 1,437",
        "`load_data()` has not returned the same in all tasks.",
        "Seed what it draws, sort what comes from a set, and look whether a file has changed.",
    ),
    (
        r"URL fetch failure|Incomplete or corrupted file detected",
        "Exception: URL fetch failure on "
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
        "Keras could not download this data set.",
        "Try again later, or use --dataset digits, which needs no network.",
    ),
    (
        r"No such file or directory: '.*records\.json'|files to train on, not|files are too few",
        "ValueError: 2 files are too few for 3 workers",
        "Each worker needs a TFRecord file of its own.",
        "Write more (write_records.py --files), or start fewer workers.",
    ),
    (
        r"FileNotFoundError: .*No such file"
        r"|can't open file",
        "FileNotFoundError: [Errno 2] No such file or directory: 'data.npz'",
        "A file is not there; most often --dataset has a misspelt name or path.",
        "Take digits, mnist, fashion_mnist, or a path relative to the current folder.",
    ),
    (
        r"BadZipFile|Cannot load file containing pickled data|contains pickled \(object\) data"
        r"|No data left in file|EOFError|IsADirectoryError|is not a file in the archive",
        "zipfile.BadZipFile: File is not a zip file",
        "The data file is cut short, lacks an array, or is no .npz file.",
        "Make it again: numpy.savez(file, x_train=…, y_train=…, x_test=…, y_test=…).",
    ),
    (
        r"UnicodeDecodeError",
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0",
        "The file is not UTF-8 text.",
        "Convert it, for example with `iconv -t utf-8`.",
    ),
    (
        r"Need minval < maxval|zero-size array to reduction operation|Received: units=0",
        "InvalidArgumentError: Need minval < maxval, got 0 >= 0",
        "The data have fewer rows than there are workers.",
        "Start fewer workers, or take more data.",
    ),
    (
        r"array must not contain infs or NaNs|\bx : Tensor had (NaN|Inf|-Inf)",
        "ValueError: array must not contain infs or NaNs",
        "The data hold NaN or infinite numbers.",
        "Replace or drop those rows.",
    ),
    (
        r"\bw : Tensor had (NaN|Inf|-Inf)",
        "InvalidArgumentError: w : Tensor had NaN values",
        "Training diverged, and a layer that turns NaN into 0 hid it from the loss.",
        "Take a smaller --learning-rate and another OUTPUT_DIR: nothing of this was saved.",
    ),
    (
        r"label value of -\d+ which is outside the valid range|must have no negative elements",
        "Received a label value of -1 which is outside the valid range of [0, 3).",
        "A label is negative.",
        "Number the classes from 0.",
    ),
    (
        r"outside the valid range",
        "Received a label value of 5 which is outside the valid range of [0, 3).",
        "The model has fewer outputs than there are classes.",
        "Give its last layer an output for each class; the examples take the highest label of "
        "y_train.",
    ),
    (
        r"must have rank \(ndim\).* target\.shape=\(\w+, [^)]*\), output\.shape=\(\w+,\)",
        "ValueError: Argument `output` must have rank (ndim) `target.ndim - 1`. Received: "
        "target.shape=(32, 10), output.shape=(32,)",
        "The loss has its arguments in the wrong order.",
        "Write def loss(y, outputs): labels come first, as in Keras.",
    ),
    (
        r"must have rank \(ndim\).* target\.shape=\(\w+, \w+\), output\.shape=\(\w+, \w+\)",
        "ValueError: Argument `output` must have rank (ndim) `target.ndim - 1`. Received: "
        "target.shape=(32, 10), output.shape=(32, 10)",
        "Each label is a row, as one-hot labels are, but the loss needs the number of a class.",
        "Use y.argmax(axis=-1), or another loss and METRICS.",
    ),
    (
        r"must have rank \(ndim\).* output\.shape=\(\w+, \w+, ",
        "ValueError: Argument `output` must have rank (ndim) `target.ndim - 1`. Received: "
        "target.shape=(32,), output.shape=(32, 8, 10)",
        "The inputs have several axes, as images have, and the model keeps all but the last.",
        "Put keras.layers.Flatten() before the Dense layers.",
    ),
    (
        r"`labels.shape` must equal|Dimensions must be equal|inhomogeneous shape"
        r"|cannot reshape array|incompatible with the layer",
        "ValueError: `labels.shape` must equal `logits.shape` except for the last dimension.",
        "The arrays do not fit each other, or the run directory holds another model.",
        "x must be [rows, features] and y [rows]; x_test has the features of x_train, and none is "
        "empty.",
    ),
    (
        r"invalid literal for int\(\).*: (np\.str_|b')|Object arrays cannot be loaded",
        "ValueError: invalid literal for int() with base 10: np.str_('cow')",
        "The labels, or the inputs, are words.",
        "Number the classes from 0, those of training and test together: numpy.unique(labels, "
        "return_inverse=True).",
    ),
    (
        r"Cannot cast array data from dtype\('float.*to dtype\('int64'\)",
        "TypeError: Cannot cast array data from dtype('float32') to dtype('int64')",
        "The labels are no whole numbers.",
        "Save y.astype(int), or y.argmax(axis=-1) of one-hot labels. To predict a number, see "
        "Your-Model/regression.py.",
    ),
    (
        r"could not convert string to float|Cannot cast",
        "ValueError: could not convert string to float: np.str_('a')",
        "The arrays hold something other than numbers.",
        "Convert it before you save them.",
    ),
    (
        r"indices\[.*\] = .* is not in \[",
        "indices[0] = 5 is not in [0, 3)",
        "The data have fewer labels than rows, or a number outside its table.",
        "Give x and y the same number of rows; a table of n rows has the numbers 0 to n - 1.",
    ),
)

group(
    "The run directory",
    (
        r"OUTPUT_DIR must have none of the signs",
        "ValueError: OUTPUT_DIR must have none of the signs *?[\\: /runs/lr=[0.1]",
        "TensorFlow takes such a sign for a pattern, and would lose checkpoints.",
        "Set OUTPUT_DIR or RUNS_DIR to a folder without them, such as lr=0.1.",
    ),
    (
        r"BlockingIOError",
        "BlockingIOError: [Errno 11] Resource temporarily unavailable",
        "Another chief trains in this run directory, and holds its lock.",
        "Wait until it is done, or set another OUTPUT_DIR.",
    ),
    (
        r"No space left on device|Disk quota exceeded|File too large",
        "OSError: [Errno 28] No space left on device",
        "The disk is full, or a file is as long as `ulimit -f` allows. The last checkpoint is "
        "whole.",
        "Make room, or raise the limit; the same command goes on from there.",
    ),
    (
        r"FileExistsError|NotADirectoryError|; Not a directory"
        r"|PermissionError|PermissionDeniedError|; Permission denied"
        r"|Read-only file system: |; Read-only file system",
        "FileExistsError: [Errno 17] File exists: 'output'",
        "A file is where the run directory should be, or you may not write there.",
        "Set OUTPUT_DIR to a folder of your own.",
    ),
    (
        r"begins at step \d+",
        "RuntimeError: This worker begins at step 100, others elsewhere",
        "The workers have restored different checkpoints.",
        "OUTPUT_DIR must be one folder that all see, or hold the same checkpoint for each.",
    ),
)

group(
    "The checkpoint",
    (
        r"Key \S+ not found in checkpoint|not bound to checkpointed values"
        r"|Some objects had attributes which were not restored"
        r"|Assign requires shapes of both tensors to match"
        r"|shape_and_slice spec|checkpoint of another model|[Rr]eceived incompatible tensor"
        r"|Shape mismatch.*assigned value shape"
        # A Saver restores any shape; what uses the variable then fails.
        r"|Determined shape must either match input shape|Matrix size-incompatible"
        r"|has a checkpoint of an older version",
        "Key weights_3 not found in checkpoint",
        "The run directory holds the checkpoint of another model, or of an older version of the "
        "script.",
        "Set another OUTPUT_DIR, or use the data, model and flags of that run.",
    ),
    (
        r"DataLossError|an sstable|Unable to open table file|hecksum (does not match|mismatch)"
        r"|Read less bytes than requested|not a valid checkpoint"
        r"|\.data-\d+-of-\d+; No such file|[Cc]heckpoint.*cannot be read"
        r"|TensorSliceReader constructor",
        "file is too short to be an sstable",
        "The newest checkpoint is damaged or not complete.",
        "Name the one before it in the first line of the file `checkpoint`.",
    ),
    (
        r"no new (checkpoint|flags\.json) came|there is no checkpoint in",
        "tfrun: no new checkpoint came in 600 s",
        "The evaluator waits for a chief that is slow, has failed, or saves elsewhere.",
        "Look into the chief's log; raise --timeout, or lower --checkpoint-steps.",
    ),
)

group(
    "The loss",
    (
        r"[Ll]oss is -?(nan|inf)|Tensor had (-?Inf|NaN)|NaN loss",
        "FloatingPointError: loss is nan at update 12",
        "Training has diverged: its steps were too long, or the data hold NaN.",
        "Lower --learning-rate, still more with many workers. Scale inputs such as pixels to "
        "about 1. At the first update, look for NaN in the data.",
    ),
)

group(
    "It ran, then stopped: another task",
    (
        r"HorovodInternalError|Horovod has been shut down|[Gg]loo.*(Connection|Timed out)"
        r"|ran into a timeout.*[Hh]orovod|[Cc]ollective ops is aborted|current incarnation doesn't"
        r"|^Timeout \(\d+:\d\d:\d\d\)!",
        "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down.",
        "Another worker is gone or did not answer in time; an all-reduce needs all.",
        "Look for the first error in the others' logs. The same command goes on from the last "
        "checkpoint.",
    ),
    (
        r"Timestamp cannot be called when determinism is enabled",
        "FailedPreconditionError: Timestamp cannot be called when determinism is enabled",
        "With TF_DETERMINISTIC_OPS TensorFlow refuses to read the clock.",
        "Unset it: the rows of each mini-batch follow from --seed without it.",
    ),
    (
        r"ConnectionError: ps \d+ did not answer"
        r"|FailedPreconditionError|Could not find variable|uninitialized value",
        "ConnectionError: ps 0 did not answer at 127.0.0.1:9",
        "A parameter server was lost, and its parameters with it.",
        "The same command goes on from the last checkpoint; `tfrun --restarts 3` does so by "
        "itself.",
    ),
    (
        r"the ps has another age",
        "InvalidArgumentError: assertion failed: [the ps has another age]",
        "A ps was lost again and again, or somebody has reset it.",
        "Look for the first error in the logs of all ps. The same command goes on from the last "
        "checkpoint.",
    ),
    (
        r"DeadlineExceededError|Timed out waiting for notification|TimeoutError",
        "errors_impl.DeadlineExceededError: Graph execution error:",
        "A task that this one depends on did not start, or hangs.",
        "Look into the log of the task that the line names; `ps-0.push` there is push on ps 0. If "
        "an update takes over 10 s, take `--updates-per-call 1`. The same command goes on from the "
        "last checkpoint.",
    ),
    (
        r"UnavailableError|failed to connect to all addresses|Socket closed"
        r"|Connection (reset by peer|refused)|ConnectionError|AbortedError|Broken pipe"
        r"|CancelledError",
        "errors_impl.UnavailableError: failed to connect to all addresses",
        "Another task has failed or was stopped: its connection is lost.",
        "Look for the first error in the others' logs; `tfrun --restarts 3` starts failed tasks "
        "again.",
    ),
)

group(
    "Memory, threads, devices",
    (
        r"OOM when allocating|ResourceExhaustedError|MemoryError|Cannot allocate memory"
        r"|std::bad_alloc|OUT_OF_MEMORY|out of memory",
        "MemoryError: Unable to allocate 72.8 TiB for an array",
        "This machine or its GPU has too little memory, or `ulimit -v` allows less.",
        "Use a smaller --batch-size or model, or fewer tasks.",
    ),
    (
        r"can't start new thread|pthread_create\(\) failed|Thread creation failed"
        r"|Resource temporarily unavailable|Too many open files",
        "RuntimeError: can't start new thread",
        "The system allows no more threads, processes, memory or open files.",
        "Start fewer tasks, or raise the limit: `ulimit -u`, `ulimit -v`, a container's pids; for "
        "files `ulimit -n 4096`.",
    ),
    (
        r"Errno 30\] Read-only file system$|Function not implemented$",
        "OSError: [Errno 30] Read-only file system",
        "Probably Python can make no semaphore: /dev/shm is missing or read-only.",
        "Mount a tmpfs there.",
    ),
    (
        r"worker is for one GPU",
        "RuntimeError: A worker is for one GPU",
        "This worker sees several GPUs and would use only one.",
        "Start one for each: tfrun assigns them; by hand, set CUDA_VISIBLE_DEVICES.",
    ),
    (
        r"--devices \d+: there (are|is)|Cannot assign a device for operation|[Ii]nvalid device",
        "ValueError: --devices 4: there are 2 GPUs",
        "The script sees fewer devices.",
        "Lower --devices, or check CUDA_VISIBLE_DEVICES and nvidia-smi.",
    ),
    (
        r"more than its limit of .*--memory",
        "worker 0 used 2.1 GiB of memory, more than its limit of 2 GiB (--memory)",
        "The task needs more than you allowed.",
        "Give it more (--memory worker=3G), or lower --batch-size.",
    ),
    (
        r"killed by SIGKILL"
        r"|killed by SIGXCPU",
        "worker 1 was killed by SIGKILL",
        "Most often the kernel ends a task by force when memory, or the processor time of `ulimit "
        "-t`, runs out.",
        "Look with `dmesg | tail`; use fewer tasks or a smaller model, or raise the limit.",
    ),
    (
        r"killed by SIG(TERM|HUP|INT)",
        "worker 1 was killed by SIGTERM",
        "A batch system, a guard such as earlyoom, or a person asked the task to end.",
        "Look into its log; the same command goes on from the last checkpoint.",
    ),
    (
        r"lost its connection to",
        "worker 1 lost its connection to host2",
        "The host is off, the network was cut, or something ended its ssh.",
        "Check whether `ssh` reaches it. The same command goes on from the last checkpoint.",
    ),
    (
        r"killed by SIGILL|Illegal instruction",
        "worker 1 was killed by SIGILL",
        "This processor lacks instructions that the TensorFlow package uses (AVX).",
        "Use another machine, or a TensorFlow built for it.",
    ),
    (
        r"killed by SIG(SEGV|ABRT|BUS)|Segmentation fault|Fatal Python error",
        "worker 1 was killed by SIGSEGV",
        "TensorFlow or another native library has crashed.",
        "Look at the end of the log; the same command goes on from the last checkpoint.",
    ),
)

group(
    "Packages",
    (
        r"No module named '?horovod|Horovod is not installed",
        "ModuleNotFoundError: No module named 'horovod'",
        "This Python has no Horovod.",
        "`bash Horovod-RingAllReduce/run.sh` builds it once; that takes some minutes.",
    ),
    (
        r"Failed to load the native TensorFlow|GLIBC|libstdc\+\+|incompatible Protobuf|_ARRAY_API"
        r"|DLL load failed|numpy.core.multiarray failed",
        "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.27' not found",
        "TensorFlow does not fit this system or the packages beside it.",
        "`source activate.sh` has the locked versions.",
    ),
    (
        r"No module named '(jax|torch|openvino)\b",
        "ModuleNotFoundError: No module named 'jax'",
        "Keras has another backend, by KERAS_BACKEND or ~/.keras/keras.json.",
        "Set KERAS_BACKEND=tensorflow, as tfrun does.",
    ),
    (
        r"cannot import name|Keras cannot be imported|module 'keras\S*' has no attribute",
        "ImportError: cannot import name 'ops' from 'keras'",
        "A package is not the locked one; PYTHONPATH often leads to an old one.",
        "Unset PYTHONPATH, and `source activate.sh`.",
    ),
    (
        r"ModuleNotFoundError|ImportError",
        "ModuleNotFoundError: No module named 'tensorflow'",
        "A package is missing in this Python.",
        "`source activate.sh` makes an environment that has it; without a clone, `pip install` it.",
    ),
)

group(
    "Horovod",
    (
        r"[Nn]ot enough slots|More processes than.*slots|Requested more processes",
        "ValueError: Requested more processes (4) than there are available slots (2)",
        "You ask for more ranks than these hosts have slots.",
        "Give them more (-H localhost:4), or ask for fewer (-np).",
    ),
    (
        r"One or more tensors were submitted to be reduced",
        "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of "
        "ranks",
        "A rank hangs, or the ranks do not make the same calls in the same order.",
        "Look at the ranks that the message names.",
    ),
)
