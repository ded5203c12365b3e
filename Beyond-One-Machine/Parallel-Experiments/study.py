"""Study: Optuna chooses the settings of the same training function, one after another.

    each trial   suggests a learning rate and a dropout from the results so far, and trains
    again        the journal has all finished trials, and the study goes on from there

Run:           bash run_study.sh --trials 12
"""

import csv
import os
import pathlib
import sys

import digits
from lab.measure import arguments, example_runs


os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported


def objective(trial, dataset, epochs):
    """Returns the accuracy of one trial."""
    learning_rate = trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True)
    dropout = trial.suggest_float("dropout", 0.0, 0.6)
    metrics = digits.train(learning_rate, dropout, epochs=epochs, dataset=dataset)
    trial.set_user_attr("loss", metrics["loss"])
    return metrics["accuracy"]


def study_in(journal, seed):
    """Returns the study of a journal, a new one or one that goes on."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # A journal is a file that several processes may share, also on NFS; SQLite locks badly there.
    file = optuna.storages.journal.JournalFileBackend(str(journal))
    storage = optuna.storages.JournalStorage(file)
    study = optuna.create_study(
        study_name="digits", storage=storage, direction="maximize", load_if_exists=True
    )
    # A sampler that begins again with the same seed would suggest the first trials once more.
    study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials), n_startup_trials=5)
    return study


def main():
    parser = arguments.Parser(__doc__)
    parser.number("--trials", 12, "finished trials, those of earlier calls included")
    parser.number("--epochs", 8, "of each trial")
    datasets = ["digits", "mnist", "fashion_mnist"]
    parser.add_argument("--dataset", default="digits", choices=datasets, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the sampler (%(default)s)")
    words = "the folder of the journal; else a new one in runs/"
    parser.add_argument("--logdir", type=pathlib.Path, help=words)
    flags = parser.parse_args()
    try:
        folder = flags.logdir or example_runs.output_directory("Study")
        folder.mkdir(parents=True, exist_ok=True)
        study = study_in(folder / "journal.log", flags.seed)
    except OSError as error:
        print(f"study.py: the logdir cannot be written: {error}", file=sys.stderr)
        return 2

    def finished():
        done = [trial for trial in study.trials if trial.value is not None]
        return sorted(done, key=lambda trial: -trial.value)

    def show(_, trial):
        text = ", ".join(f"{name} {value:.4g}" for name, value in trial.params.items())
        end = "failed" if trial.value is None else f"accuracy {trial.value:.4f}"
        print(f"[study] trial {trial.number}: {text}: {end}", flush=True)

    count = len(finished())
    print(f"[study] {count} of {flags.trials} trials are done, in {folder}", flush=True)
    # A trial that fails is kept as failed; another call makes up for it.
    study.optimize(
        lambda trial: objective(trial, flags.dataset, flags.epochs),
        n_trials=max(0, flags.trials - count),
        callbacks=[show],
        catch=(Exception,),
    )
    done = finished()
    with open(folder / "study.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["trial", "learning_rate", "dropout", "accuracy", "loss"])
        for trial in done:
            rate, dropout = trial.params["learning_rate"], trial.params["dropout"]
            rows.writerow([trial.number, rate, dropout, trial.value, trial.user_attrs["loss"]])
    if done:
        values = ", ".join(f"{name} {value:.4g}" for name, value in done[0].params.items())
        print(f"[study] the best of {len(done)}: accuracy {done[0].value:.4f} with {values}")
    return int(len(done) < flags.trials)


if __name__ == "__main__":
    sys.exit(main())
