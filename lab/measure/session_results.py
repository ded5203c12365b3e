"""Which results are of the scripts with sessions, from which the examples were written anew.

Such results stay in the other measurements, with WORDS, until these are measured again. This file
goes with the last of them.
"""

from lab.digests import example_digest
from lab.examples import main_script

COMMIT = "73228d0e"
WORDS = f"session script of commit {COMMIT}"
DIGESTS = {  # {an example: the digest of its script at COMMIT}
    "HogWild": "ceaa6658dd32c281",
    "Distributed-Setup": "0aef7953c308ada3",
    "Non-Distributed-Setup": "0aa55764447c61cc",
    "Sparse-Embeddings": "77a2cf99eff4e045",
    "DOWNPOUR-Easy": "8b3779a94d04bf4d",
    "DOWNPOUR": "c8ca096821d5627c",
    "ADAG": "696c068e3824e182",
    "DynSGD": "0da48a5ce65a4609",
    "AEASGD": "da07f50826a777ef",
    "AEAMSGD": "cb027cd6380b3591",
    "Further-Algorithms/Async-Local-SGD": "d1098b7107db5c8b",
    "Further-Algorithms/Bounded-Staleness": "2ccbc4608db46202",
    "Further-Algorithms/Delay-Compensation": "0a43dab24326b1b4",
    "Synchronous-SGD": "2aa909bae7f4dc2f",
    "Synchronous-SGD-different-learning-rates": "aa30fa22d1ec78b9",
    "SAGN": "0f4793cc178aaeba",
    "Further-Algorithms/Local-SGD": "537fbb9d443a3fa5",
    "Further-Algorithms/DiLoCo": "71ac0f462de03d18",
}
TABLES = (  # of other measurements, with such results
    "Measurements/Benchmarks/table.txt",
    "Measurements/Benchmarks/gpu.txt",
    "Measurements/Compare/page.txt",
    "Measurements/Scaling/table.txt",
    "Measurements/Slow-Network/table.txt",
    "Measurements/Staleness/table.txt",
    "Operations/Fault-Tolerance/table.txt",
    "Beyond-One-Machine/start_up.txt",
    "Beyond-One-Machine/Spark-Cluster/kills.txt",
    "Your-Model/matrix.txt",
    "Beyond-One-Machine/TensorFlowOnSpark/rates_ways.txt",
)


def is_session_result(folder: str, digest: str | None) -> bool:
    """Returns whether results with this digest are of the script that an example had before."""
    today = example_digest(main_script(folder))
    return digest != today and digest == DIGESTS.get(folder, "")
