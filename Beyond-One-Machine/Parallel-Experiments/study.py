"""Study: Optuna chooses the settings of the same training function, one after another.

    each trial   suggests a learning rate and a dropout from the results so far, and trains
    again        the journal has all finished trials, and the study goes on from there

Run:           bash run_study.sh --trials 12
"""

import argparse
import csv
import os
import pathlib
import sys
import time

import digits

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported


def objective(trial, dataset, epochs):
    """The accuracy of one trial."""
    learning_rate = trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True)
    dropout = trial.suggest_float("dropout", 0.0, 0.6)
    found = digits.train(learning_rate, dropout, epochs=epochs, dataset=dataset)
    trial.set_user_attr("loss", found["loss"])
    return found["accuracy"]


def study_in(journal, seed):
    """The study of a journal, a new one or one that goes on."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # A journal is a file that several processes may share, also on NFS; SQLite locks badly there.
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(journal))
    )
    study = optuna.create_study(
        study_name="digits", storage=storage, direction="maximize", load_if_exists=True
    )
    # A sampler that begins again with the same seed would suggest the first trials once more.
    study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials), n_startup_trials=5)
    return study


def positive(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError("must be above 0, is %s" % text)
    return int(text)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--trials",
        type=positive,
        default=12,
        help="finished trials, those of earlier calls included (%(default)s)",
    )
    parser.add_argument(
        "--dataset",
        default="digits",
        help="digits, mnist or fashion_mnist (%(default)s)",
        choices=["digits", "mnist", "fashion_mnist"],
    )
    parser.add_argument("--epochs", type=positive, default=8, help="of each trial (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the sampler (%(default)s)")
    parser.add_argument(
        "--logdir",
        default=os.environ.get("OUTPUT_DIR", ""),
        help="the folder of the journal; else a new one in runs/",
    )
    flags = parser.parse_args()
    runs = pathlib.Path(os.environ.get("RUNS_DIR") or "runs") / "Study"
    folder = pathlib.Path(flags.logdir or runs / time.strftime("%Y-%m-%d_%H-%M-%S"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        study = study_in(folder / "journal.log", flags.seed)
    except OSError as error:
        print("study.py: the logdir cannot be written: %s" % error, file=sys.stderr)
        return 2
    done = [trial for trial in study.trials if trial.value is not None]
    print("[study] %d of %d trials are done, in %s" % (len(done), flags.trials, folder), flush=True)

    def show(_, trial):
        text = ", ".join("%s %.4g" % pair for pair in trial.params.items())
        end = "failed" if trial.value is None else "accuracy %.4f" % trial.value
        print("[study] trial %d: %s: %s" % (trial.number, text, end), flush=True)

    missing = max(0, flags.trials - len(done))
    # A trial that fails is kept as failed; another call makes up for it.
    study.optimize(
        lambda trial: objective(trial, flags.dataset, flags.epochs),
        n_trials=missing,
        callbacks=[show],
        catch=(Exception,),
    )
    done = sorted(
        (trial for trial in study.trials if trial.value is not None), key=lambda trial: -trial.value
    )
    with open(folder / "study.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["trial", "learning_rate", "dropout", "accuracy", "loss"])
        for trial in done:
            rows.writerow(
                [
                    trial.number,
                    trial.params["learning_rate"],
                    trial.params["dropout"],
                    trial.value,
                    trial.user_attrs["loss"],
                ]
            )
    if done:
        print(
            "[study] the best of %d: accuracy %.4f with learning_rate %.4g, dropout %.3g"
            % (len(done), done[0].value, *done[0].params.values())
        )
    return int(len(done) < flags.trials)


if __name__ == "__main__":
    sys.exit(main())
