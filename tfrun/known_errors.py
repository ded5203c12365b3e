"""The table of known errors: what each means, and what to do. errors.py looks into it.

The page on troubleshooting is made from this table by tools/readmes.py --fix. Before it stand the
known lines that are no errors: tfrun does not show them.
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

GROUPS = {}  # {symptom: its entries}; where several entries know a line, the first explains it


def group(symptom, *entries):
    """Adds entries, each (pattern, example, means, do), under a heading of the page."""
    GROUPS[symptom] = [Entry(re.compile(entry[0]), *entry[1:]) for entry in entries]


group(
    "It ends at once: a flag",
    (
        r"^\S+\.py: error: ",
        "hogwild.py: error: argument --steps: must be above 0 and finite",
        "A flag is missing, unknown or shortened, or has a value that the script cannot use.",
        "Correct it: `--help` lists the flags and their defaults.",
    ),
    (
        r"--backup-workers must be below",
        "ValueError: --backup-workers must be below the number of workers, 2",
        "A step needs the gradient of at least one worker, so not all workers can be backups.",
        "Give fewer --backup-workers, or start more workers (WORKERS=4 bash run.sh).",
    ),
    (
        r"--rho must be below 1",
        "ValueError: --learning-rate times --rho must be below 1, is 2: w runs away",
        "The elastic force would move the parameters past the point that it pulls them to.",
        "Lower --learning-rate or --rho.",
    ),
    (
        r"--compress must be one of|ValueError: kth\(=-?\d+\) out of bounds",
        "ValueError: --compress must be one of ['power', 'top-k', 'sign', 'qsgd'], and --levels at "
        "most 127: int8",
        "Compressed-AllReduce knows four compressors. --top is a share, and a level must fit int8.",
        "Choose one of the four, a --top from 0 to 1, and at most 127 --levels.",
    ),
    (
        r"--learning-rates: each must|could not convert string to float: '",
        "ValueError: --learning-rates: each must be above 0 and finite, is 0.1,0",
        "The learning rates must be numbers above 0, with commas between them.",
        "Correct them, for example --learning-rates 0.1,0.05.",
    ),
    (
        r"cannot be cut into \d+ equal parts|Number of ways to split should evenly divide",
        "ValueError: --batch-size 32 cannot be cut into 5 equal parts (--micro-batches)",
        "All parts of a mini-batch must have the same number of examples.",
        "Choose a number of parts that divides --batch-size.",
    ),
    (
        r"is neither gpipe nor 1f1b",
        "ValueError: --schedule zigzag is neither gpipe nor 1f1b",
        "A pipeline needs an order of its passes, and the script has these two.",
        "Give --schedule gpipe, or --schedule 1f1b, which stores fewer activations.",
    ),
    (
        r"is no stage of ZeRO",
        "ValueError: --stage 4 is no stage of ZeRO: choose 0, 1, 2 or 3",
        "A stage says what each worker holds a share of: nothing, moments, gradients too, w too.",
        "Give --stage 0, 1, 2 or 3.",
    ),
    (
        r"layers, too few for \d+",
        "ValueError: The model has 3 layers, too few for 4 places",
        "A device of a pipeline needs a layer; one that takes a mask stays with the one before it.",
        "Use fewer workers or a smaller --devices, or a model with more layers.",
    ),
    (
        r"needs an even number of workers|needs two workers at least",
        "ValueError: Gossip-SGD needs an even number of workers, and has 3",
        "Every second worker of the ring is active and the others are passive, so their number "
        "must be even; and a worker needs somebody to average with.",
        "Start an even number (WORKERS=4), or take D-PSGD, which any number from two on can do.",
    ),
    (
        r"is for one worker",
        "ValueError: This script is for one worker: HogWild/hogwild.py is for several",
        "Several workers were started, but the algorithm has one.",
        "Start one (WORKERS=1), or take an example for several workers.",
    ),
)

group(
    "It ends at once: the model",
    (
        r"resource: Attempting to capture an EagerTensor",
        "resource: Attempting to capture an EagerTensor without building a function.",
        "The loss, or a layer, uses a variable that is not the model's own.",
        "Write the loss as a function without variables, and create a layer's in its build().",
    ),
    (
        r"Attempting to capture an EagerTensor",
        "my: Attempting to capture an EagerTensor without building a function.",
        "A tensor that was made between the layers of the model belongs to no graph.",
        "Make such constants with NumPy, or in the call() of a layer.",
    ),
    (
        r"Collective ops must be configured at program startup|Virtual devices cannot be modified",
        "RuntimeError: Collective ops must be configured at program startup",
        "`load_data` has used TensorFlow, which the strategy of this script must start itself.",
        "Make the arrays with NumPy or in another program, or take an example without a strategy.",
    ),
    (
        r"To call stateless_call, \w+ must be built",
        "ValueError: To call stateless_call, Sequential must be built (i.e. its variables must "
        "have been already created).",
        "The model does not know the shape of its input, and has no variables yet.",
        "Begin it with keras.Input(data.x_train.shape[1:]).",
    ),
    (
        r"cannot unpack non-iterable \w+ object",
        "TypeError: cannot unpack non-iterable function object",
        "An entry of METRICS is not a pair.",
        'Write "name": ("max", function) or ("min", function); "max" means that higher is better.',
    ),
    (
        r"METRICS needs .*, not \('(max|min)', ",
        'ValueError: METRICS needs ("max" or "min", function), not (\'max\', '
        "<SparseCategoricalAccuracy name=sparse_categorical_accuracy>)",
        "METRICS has an object of Keras, where it needs a function.",
        "Write keras.metrics.sparse_categorical_accuracy instead of "
        "keras.metrics.SparseCategoricalAccuracy(), and other metrics accordingly.",
    ),
    (
        r'METRICS needs |neither "max" nor "min"',
        'ValueError: METRICS needs ("max" or "min", function), not (\'maximum\', <function mae>)',
        "The first part of an entry of METRICS must say which values are the better ones.",
        'Write "max" if higher is better, as for accuracy; write "min" if lower is better.',
    ),
    (
        r"that don't all match",
        "TypeError: Tensors in list passed to 'values' of 'ConcatV2' Op have types [float32, "
        "float16] that don't all match.",
        "The trainable variables have several types of number, but w is one vector.",
        "Give all layers the same dtype; in a mixed policy the variables are float32 as well.",
    ),
    (
        r"has no make_model\(\)",
        "tfrun: sparse_embeddings.py has no make_model(): what it learns is no model from Keras",
        "`tfrun evaluate` and `tfrun export` need the Keras model of the script.",
        "Read the tests of the chief instead: they are in its metrics, `metrics-<task>.csv`.",
    ),
    (
        r"A model that is not Sequential",
        "TypeError: A model that is not Sequential needs stages() of its own",
        "The script can cut only a plain chain of layers into parts by itself.",
        "Build the model as keras.Sequential, or write stages() in the script for yours.",
    ),
)

group(
    "It ends at once: TF_CONFIG",
    (
        r"JSONDecodeError",
        "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1",
        "TF_CONFIG, or a file that should contain JSON, is not valid JSON.",
        "Use double quotes in JSON; in a shell, put single quotes around the whole value.",
    ),
    (
        r"TF_CONFIG.*://|Could not (parse port|interpret) .*://|(answer|answered) at \w+://",
        "ValueError: the addresses in TF_CONFIG are host:port, without grpc://",
        "An address in TF_CONFIG begins with a scheme, such as grpc://.",
        "Write each address as host:port.",
    ),
    (
        r"TF_CONFIG.*(twice|same address|same port)|unknown device|CreateContext failed",
        "ValueError: TF_CONFIG has the address 127.0.0.1:2222 twice",
        "Two tasks have one address, so one of them answers for both, or cannot listen.",
        "Give each task on a machine a port of its own.",
    ),
    (
        r"Could not parse port|not enough values to unpack \(expected 2, got 1\)",
        'InvalidArgumentError: Could not parse port for local server from "b".',
        "An address in TF_CONFIG has no port.",
        "Write each address as host:port.",
    ),
    (
        r"Cannot assign requested address|Name or service not known|nodename nor servname provided",
        "socket.gaierror: [Errno -2] Name or service not known",
        "A host name in TF_CONFIG is not known, or this machine does not have this task's address.",
        "Write host:port, with the right name or IP; check their order and the index of the task.",
    ),
    (
        r"another script, TF_CONFIG, flags|Mismatched (all|broad|reduce|data types)",
        "ConnectionError: worker 1 has another script, TF_CONFIG, flags or model than worker 0: "
        "start all alike",
        "The workers do not agree on the script, cluster, flags, model or type of the data.",
        "Start all with the same script, flags and cluster, each at an address of its own.",
    ),
    (
        r"\('evaluator', \d+\) is not in list|is no evaluator: run",
        "ValueError: ('evaluator', 0) is not in list",
        "A task of the type evaluator was started with the script, which only trains.",
        "Start `tfrun evaluate DIR --follow` as that task, or all tasks with `tfrun --evaluator`.",
    ),
    (
        r"types of tasks are|TF_CONFIG names a task of type '"
        r"|\('(?!chief|worker|ps)\w+', \d+\) is not in list",
        "ValueError: TF_CONFIG names a task of type 'boss': the types are chief, worker, ps and "
        "evaluator",
        "The cluster in TF_CONFIG, or its task, has a type that the scripts do not know.",
        "Rename it in the TF_CONFIG of every task: a ps holds the parameters, a worker trains, "
        "and a chief is the worker that also saves.",
    ),
    (
        r"was not defined in (job|cluster)|No such job in cluster|No task with index"
        r"|\(.*\) is not in list|KeyError: '(TF_CONFIG|cluster|task|type|index|ps|worker|chief)'"
        r"|Error: The tasks for job|.*Error: .*TF_CONFIG|^TF_CONFIG ",
        'InternalError: Task 9 was not defined in job "worker"',
        "TF_CONFIG is not set, lacks a part, or its task is not in its cluster.",
        'Start with `bash run.sh`, or set it for each task like {"cluster": {"ps": ["host:port"], '
        '"worker": ["host:port"]}, "task": {"type": "worker", "index": 0}}.',
    ),
)

group(
    "It cannot start, or waits for another task in vain",
    (
        r"Could not start gRPC server|Address already in use|Failed to add port to server",
        "UnknownError: Could not start gRPC server",
        "Another program or task listens at the port that TF_CONFIG gives this task.",
        "Choose a free port, or let tfrun choose; `ss -ltnp` shows which program has it.",
    ),
    (
        r"HTTP proxy returned response code",
        "UnavailableError: failed to connect to all addresses; last error: UNKNOWN: HTTP proxy "
        "returned response code 403",
        "A proxy, by grpc_proxy or http_proxy, stands between this task and the others.",
        "Set grpc_proxy to nothing, as tfrun does: `export grpc_proxy=`.",
    ),
    (
        r"(?<!ConnectionError: )ps \d+ (did|does) not answer|no ps answered at",
        "TimeoutError: no ps answered at 127.0.0.1:9 in 120 s",
        "The parameter server did not start, or the network does not let this task reach it.",
        "Look into its log, and at the address in TF_CONFIG and the firewall between the hosts.",
    ),
    (
        r"chief made no model",
        "TimeoutError: the chief made no model in 120 s",
        "The chief makes the parameters for all workers; it did not start, or has failed.",
        "Look into the log of the chief, which is worker 0 where no task has the type chief.",
    ),
    (
        r"no gradient of|No step was made in",
        "TimeoutError: no gradient of worker 2 came in 15 s",
        "A synchronous step waits for each worker that the line names; they are slow or gone.",
        "Look into their logs; raise --step-timeout for slow ones, or allow --backup-workers.",
    ),
    (
        r"it is silent, or waits itself|it closed the connection|lost (the|its) \w+ neighbour"
        r"|(left|right) neighbour:",
        "ConnectionError: worker 1, the right neighbour: it closed the connection",
        "The ring is broken: a neighbour has failed, hangs, or cannot be reached any more.",
        "Look into its log. The same command goes on from the last checkpoint.",
    ),
    (
        r"(worker|chief) \d+ did not answer",
        "TimeoutError: worker 1 did not answer at 127.0.0.1:9 in 120 s",
        "A worker that the others wait for did not start, has failed, or cannot be reached.",
        "Look into its log, and at its address in TF_CONFIG.",
    ),
)

group(
    "The data",
    (
        r"URL fetch failure|Incomplete or corrupted file detected",
        "Exception: URL fetch failure on https://storage.googleapis.com/tensorflow/tf-keras-"
        "datasets/mnist.npz: None -- [Errno -3] Temporary failure in name resolution",
        "Keras downloads this data set at its first use, and could not reach the server.",
        "Try again later, or use --dataset digits, which needs no network.",
    ),
    (
        r"No such file or directory: '.*records\.json'|files to train on, not|files are too few",
        "ValueError: 2 files are too few for 3 workers",
        "TFRecord files are missing in that folder: each worker needs a file of its own.",
        "Write them, or more of them (write_records.py --files), or start fewer workers.",
    ),
    (
        r"FileNotFoundError: .*No such file",
        "FileNotFoundError: [Errno 2] No such file or directory: 'data.npz'",
        "A file is not there: most often --dataset has a misspelt name or path.",
        "Correct it: digits, mnist, fashion_mnist, or a path relative to the current folder.",
    ),
    (
        r"BadZipFile|Cannot load file containing pickled data|contains pickled \(object\) data"
        r"|No data left in file|EOFError|IsADirectoryError|is not a file in the archive",
        "zipfile.BadZipFile: File is not a zip file",
        "The data file is cut short, lacks an array, or has another format than .npz.",
        "Make it again with numpy.savez(file, x_train=…, y_train=…, x_test=…, y_test=…).",
    ),
    (
        r"UnicodeDecodeError",
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start",
        "The file is not UTF-8 text.",
        "Convert it, for example with `iconv -t utf-8`.",
    ),
    (
        r"is too short: ten paragraphs",
        "ValueError: --dataset a.txt is too short: ten paragraphs at least, of words that come "
        "again",
        "Nothing can be learned from so few words.",
        "Take a longer text: ten paragraphs at least.",
    ),
    (
        r"Need minval < maxval|zero-size array to reduction operation|Received: units=0",
        "InvalidArgumentError: Need minval < maxval, got 0 >= 0",
        "The data have fewer rows than there are workers, so a worker would have none.",
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
        "The parameters are no longer finite: training diverged, although the loss does not show "
        "it. Where a layer has made NaN to 0, the loss stays finite.",
        "Take a smaller --learning-rate, and another OUTPUT_DIR: nothing of this was saved.",
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
        "Give the last layer of your own model an output for each class. The model of the examples "
        "takes their number from y_train: the highest label must occur there.",
    ),
    (
        r"must have rank \(ndim\).* target\.shape=\(\w+, [^)]*\), output\.shape=\(\w+,\)",
        "ValueError: Argument `output` must have rank (ndim) `target.ndim - 1`. Received: "
        "target.shape=(32, 10), output.shape=(32,)",
        "The loss has its arguments in the wrong order: it takes the outputs for the labels.",
        "Write def loss(y, outputs): labels come first, as in the losses and metrics of Keras.",
    ),
    (
        r"must have rank \(ndim\).* target\.shape=\(\w+, \w+\), output\.shape=\(\w+, \w+\)",
        "ValueError: Argument `output` must have rank (ndim) `target.ndim - 1`. Received: "
        "target.shape=(32, 10), output.shape=(32, 10)",
        "Each label is a row of numbers, as one-hot labels are, but the loss needs the number of "
        "a class.",
        "Use y.argmax(axis=-1) as the labels; if they are no classes, write another loss and "
        "METRICS.",
    ),
    (
        r"must have rank \(ndim\).* output\.shape=\(\w+, \w+, ",
        "ValueError: Argument `output` must have rank (ndim) `target.ndim - 1`. Received: "
        "target.shape=(32,), output.shape=(32, 8, 10)",
        "The inputs have several axes, as images have, and the model keeps all but the last one.",
        "Save x.reshape(len(x), -1) instead of x, or put keras.layers.Flatten() before the Dense "
        "layers of the model.",
    ),
    (
        r"`labels.shape` must equal|Dimensions must be equal|inhomogeneous shape"
        r"|cannot reshape array|incompatible with the layer",
        "ValueError: `labels.shape` must equal `logits.shape` except for the last dimension.",
        "The arrays do not fit each other, or the run directory holds another model.",
        "x must be [rows, features] and y [rows]. None may be empty, and x_test has as many "
        "features as x_train.",
    ),
    (
        r"invalid literal for int\(\).*: (np\.str_|b')|Object arrays cannot be loaded",
        "ValueError: invalid literal for int() with base 10: np.str_('cow')",
        "The labels, or the inputs, are words and not numbers.",
        "Number the classes from 0: numpy.unique(labels, return_inverse=True) returns the words "
        "and their numbers. Number the labels of training and test together.",
    ),
    (
        r"Cannot cast array data from dtype\('float.*to dtype\('int64'\)",
        "TypeError: Cannot cast array data from dtype('float32') to dtype('int64') according to "
        "the rule 'safe'",
        "The labels are no whole numbers, as those of classes are.",
        "Save y.astype(int), or y.argmax(axis=-1) of one-hot labels. To predict a number, take "
        "another loss and other METRICS, as Your-Model/regression.py does.",
    ),
    (
        r"could not convert string to float|Cannot cast",
        "ValueError: could not convert string to float: np.str_('a')",
        "The arrays hold something other than numbers.",
        "Convert them to numbers before you save them.",
    ),
    (
        r"indices\[.*\] = .* is not in \[",
        "indices[0] = 5 is not in [0, 3)",
        "The data have fewer labels than rows, or a number that is outside its table.",
        "Give x and y the same number of rows; a table of n rows has the numbers 0 to n - 1.",
    ),
)

group(
    "The run directory",
    (
        r"OUTPUT_DIR must have none of the signs",
        "ValueError: OUTPUT_DIR must have none of the signs *?[\\: /runs/lr=[0.1]",
        "TensorFlow takes such a sign in a path for a pattern: it would find no checkpoint again, "
        "or remove those of another run.",
        "Set OUTPUT_DIR or RUNS_DIR to a folder without these signs, such as lr=0.1.",
    ),
    (
        r"BlockingIOError",
        "BlockingIOError: [Errno 11] Resource temporarily unavailable",
        "Another chief holds the lock of this run directory and trains in it.",
        "Wait until it is done, or set OUTPUT_DIR to another folder.",
    ),
    (
        r"No space left on device|Disk quota exceeded",
        "OSError: [Errno 28] No space left on device",
        "The disk is full. The last checkpoint is whole.",
        "Make room; the same command with the same OUTPUT_DIR goes on from there.",
    ),
    (
        r"FileExistsError|NotADirectoryError|; Not a directory",
        "FileExistsError: [Errno 17] File exists: 'output'",
        "A file is where the run directory, OUTPUT_DIR, should be.",
        "Set OUTPUT_DIR to another folder.",
    ),
    (
        r"PermissionError|PermissionDeniedError|Read-only file system|; Permission denied",
        "PermissionError: [Errno 13] Permission denied: 'output/metrics-worker-0.csv'",
        "You may not write there.",
        "Set OUTPUT_DIR to a folder of your own.",
    ),
    (
        r"begins at step \d+",
        "RuntimeError: This worker begins at step 100, others at step 0",
        "The workers have restored different checkpoints.",
        "OUTPUT_DIR must be one folder that all workers see, or hold the same checkpoint for each.",
    ),
)

group(
    "The checkpoint",
    (
        r"Key \S+ not found in checkpoint|not bound to checkpointed values"
        r"|Assign requires shapes of both tensors to match"
        r"|shape_and_slice spec|checkpoint of another model|[Rr]eceived incompatible tensor"
        r"|Shape mismatch.*assigned value shape"
        # A Saver restores any shape; what uses the variable then fails.
        r"|Determined shape must either match input shape|Matrix size-incompatible",
        "Key weights_3 not found in checkpoint",
        "The run directory holds the checkpoint of another model.",
        "Set OUTPUT_DIR to another folder; or use the data, model and flags of that run.",
    ),
    (
        r"has a checkpoint of an older version",
        "ValueError: runs/old has a checkpoint of an older version of its script",
        "The checkpoint keeps the parameters in another form, from before w was one vector.",
        "Set OUTPUT_DIR to another folder and train again.",
    ),
    (
        r"DataLossError|an sstable|Unable to open table file|hecksum (does not match|mismatch)"
        r"|Read less bytes than requested|not a valid checkpoint"
        r"|\.data-\d+-of-\d+; No such file|[Cc]heckpoint.*cannot be read"
        r"|TensorSliceReader constructor",
        "file is too short to be an sstable",
        "The newest checkpoint is damaged or not complete.",
        "Name the one before it in the first line of the file `checkpoint`: the run goes on from "
        "there.",
    ),
    (
        r"no new (checkpoint|flags\.json) came|there is no checkpoint in",
        "tfrun: no new checkpoint came in 600 s",
        "The evaluator waits for the chief, which is slow, has failed, or saves elsewhere.",
        "Look into the chief's log; both need the same folder. Slow training needs a longer "
        "--timeout, or a lower --checkpoint-steps.",
    ),
)

group(
    "The loss",
    (
        r"[Ll]oss is -?(nan|inf)|Tensor had (-?Inf|NaN)|NaN loss",
        "FloatingPointError: loss is nan at update 12",
        "Training has diverged, because its steps were too long; or the data hold NaN.",
        "Lower --learning-rate, still more with many workers or stale gradients. Scale inputs such "
        "as pixels to about 1. At the very first update look for NaN in the data.",
    ),
)

group(
    "It ran, then stopped: another task",
    (
        r"HorovodInternalError|Horovod has been shut down|[Gg]loo.*(Connection|Timed out)"
        r"|ran into a timeout.*[Hh]orovod|[Cc]ollective ops is aborted|current incarnation doesn't"
        r"|^Timeout \(\d+:\d\d:\d\d\)!",
        "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was "
        "caused by an exception on one of the ranks",
        "Another worker is gone or did not answer in time, and an all-reduce needs all of them.",
        "Look into the logs of the others for the first error. The same command goes on from the "
        "last checkpoint.",
    ),
    (
        r"ConnectionError: ps \d+ did not answer",
        "ConnectionError: ps 0 did not answer at 127.0.0.1:9",
        "A parameter server was lost, and its parameters with it.",
        "Look into its log; the same command goes on from the last checkpoint, and `tfrun "
        "--restarts 3` does so by itself.",
    ),
    (
        r"DeadlineExceededError|Timed out waiting for notification|TimeoutError",
        "tensorflow.python.framework.errors_impl.DeadlineExceededError: Graph execution error:",
        "A task that this one depends on did not start, or hangs: no answer came in time.",
        "Look into the log of the task that the line names, or for an overloaded one. If an update "
        "takes over 10 s, take `--updates-per-call 1`. The same command goes on from the last "
        "checkpoint.",
    ),
    (
        r"UnavailableError|failed to connect to all addresses|Socket closed"
        r"|Connection (reset by peer|refused)|ConnectionError|AbortedError|Broken pipe"
        r"|CancelledError",
        "tensorflow.python.framework.errors_impl.UnavailableError: failed to connect to all "
        "addresses",
        "The connection to another task is lost, or a call was cut off: a task has failed or was "
        "stopped.",
        "Look into the logs of the others for the first error; `tfrun --restarts 3` starts failed "
        "tasks again.",
    ),
    (
        r"Timestamp cannot be called when determinism is enabled",
        "FailedPreconditionError: Timestamp cannot be called when determinism is enabled",
        "The environment sets TF_DETERMINISTIC_OPS, with which TensorFlow refuses to read the "
        "clock; each update notes its time.",
        "Unset TF_DETERMINISTIC_OPS. The rows of each mini-batch follow from --seed without it.",
    ),
    (
        r"FailedPreconditionError|Could not find variable|uninitialized value",
        "errors_impl.FailedPreconditionError: Could not find variable w",
        "A parameter server has started again and lost its parameters.",
        "Start the run again: the chief restores them from the last checkpoint.",
    ),
)

group(
    "Memory, threads, devices",
    (
        r"OOM when allocating|ResourceExhaustedError|MemoryError|Cannot allocate memory"
        r"|std::bad_alloc|OUT_OF_MEMORY|out of memory",
        "MemoryError: Unable to allocate 72.8 TiB for an array with shape (10000000000000,)",
        "This machine or its GPU does not have enough memory, or `ulimit -v` allows less.",
        "Use a smaller --batch-size or model, or fewer tasks on this machine.",
    ),
    (
        r"can't start new thread|pthread_create\(\) failed|Thread creation failed"
        r"|Resource temporarily unavailable|Too many open files",
        "RuntimeError: can't start new thread",
        "The system allows no more threads, processes, memory, open files or connections.",
        "Start fewer tasks, or raise the limit: `ulimit -u`, `ulimit -v`, in a container its limit "
        "of pids; for files `ulimit -n 4096`.",
    ),
    (
        r"worker is for one GPU",
        "RuntimeError: A worker is for one GPU; start one for each",
        "This worker sees several GPUs and would use only one.",
        "Start a worker for each GPU: tfrun assigns the GPUs; by hand, set CUDA_VISIBLE_DEVICES.",
    ),
    (
        r"--devices \d+: there (are|is)|Cannot assign a device for operation|[Ii]nvalid device",
        "ValueError: --devices 4: there are 2 GPUs",
        "The script asks for more devices than it sees.",
        "Lower --devices, or check CUDA_VISIBLE_DEVICES and nvidia-smi.",
    ),
    (
        r"more than its limit of .*--memory",
        "worker 0 used 2.1 GiB of memory, more than its limit of 2 GiB (--memory), and was killed",
        "You set a limit with --memory, and the task needs more.",
        "Give it more (--memory worker=3G), or lower --batch-size.",
    ),
    (
        r"killed by SIGKILL",
        "worker 1 was killed by SIGKILL",
        "Something ended the task by force; most often the kernel does, when memory runs out, or "
        "the processor time of a hard `ulimit -t`.",
        "Look with `dmesg | tail`; use fewer tasks or a smaller model.",
    ),
    (
        r"killed by SIGXCPU",
        "worker 1 was killed by SIGXCPU",
        "The task has used the processor time that `ulimit -t` allows.",
        "Raise the limit (`ulimit -t unlimited`); the same command goes on from the last "
        "checkpoint.",
    ),
    (
        r"killed by SIG(TERM|HUP|INT)",
        "worker 1 was killed by SIGTERM",
        "Another program asked the task to end: a batch system, a guard of memory such as "
        "earlyoom, or a person.",
        "Look into its log; the same command goes on from the last checkpoint.",
    ),
    (
        r"lost its connection to",
        "worker 1 lost its connection to host2",
        "The task's host is off, the network to it was cut, or something ended its ssh.",
        "Check whether `ssh` reaches it. The same command goes on from the last checkpoint.",
    ),
    (
        r"killed by SIGILL|Illegal instruction",
        "worker 1 was killed by SIGILL",
        "This processor lacks instructions that the TensorFlow package uses (AVX).",
        "Use another machine, or a TensorFlow that was built for this processor.",
    ),
    (
        r"killed by SIG(SEGV|ABRT|BUS)|Segmentation fault|Fatal Python error",
        "worker 1 was killed by SIGSEGV",
        "TensorFlow or another native library has crashed.",
        "Look at the last lines of the log; the same command goes on from the last checkpoint.",
    ),
)

group(
    "Packages",
    (
        r"No module named '?horovod|Horovod is not installed",
        "ModuleNotFoundError: No module named 'horovod'",
        "Horovod is not installed in this Python.",
        "`bash Horovod-RingAllReduce/run.sh` builds it once; that takes some minutes.",
    ),
    (
        r"Failed to load the native TensorFlow|GLIBC|libstdc\+\+|incompatible Protobuf|_ARRAY_API"
        r"|DLL load failed|numpy.core.multiarray failed",
        "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.27' not found",
        "TensorFlow is installed, but does not fit this system or the packages beside it.",
        "Use the locked versions: `source activate.sh` makes an environment with them.",
    ),
    (
        r"No module named '(jax|torch|openvino)\b",
        "ModuleNotFoundError: No module named 'jax'",
        "Keras has another backend, by KERAS_BACKEND or ~/.keras/keras.json.",
        "Set KERAS_BACKEND=tensorflow, as tfrun does.",
    ),
    (
        r"cannot import name|Keras cannot be imported|module 'keras\S*' has no attribute",
        "ImportError: cannot import name 'ops' from 'keras' (/home/me/old/keras/__init__.py)",
        "A package has another version than the locked one; PYTHONPATH often leads to an old one.",
        "Unset PYTHONPATH, and `source activate.sh`.",
    ),
    (
        r"ModuleNotFoundError|ImportError",
        "ModuleNotFoundError: No module named 'tensorflow'",
        "A package is missing in this Python.",
        "`source activate.sh` makes an environment that has it; without a clone, `pip install` it.",
    ),
    (
        r"can't open file",
        "python: can't open file '/home/me/hogwild.py': [Errno 2] No such file or directory",
        "The script is not there.",
        "Correct its path.",
    ),
)

group(
    "Horovod",
    (
        r"[Nn]ot enough slots|More processes than.*slots|Requested more processes",
        "ValueError: Requested more processes (4) than there are available slots (2)",
        "You ask horovodrun for more ranks than these hosts have slots.",
        "Give them more slots (-H localhost:4), or ask for fewer ranks (-np).",
    ),
    (
        r"One or more tensors were submitted to be reduced",
        "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of "
        "ranks and are waiting for remainder of ranks for more than 60 seconds.",
        "A rank hangs, or the ranks do not make the same calls in the same order.",
        "Look at the ranks that the message names.",
    ),
)
