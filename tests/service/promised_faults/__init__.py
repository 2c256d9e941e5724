"""The faults of promises.py. Each is a class that has a cluster, and whose rounds break something
in it."""
from promised_faults.harness import Skip
from promised_faults.library import LibraryCallCancelled, LibraryCallOfADeadClient, LibraryCallPastItsDeadline
from promised_faults.processes import (CoordinatorPauses, CoordinatorRestarts,
                                       CoordinatorWithFolderRestarts, ExecutorFreezes, ProcessNames)
from promised_faults.programs import LongCompile, OddTypes, SignedZeros
from promised_faults.replicas import JaxReplicas, PythonReplicas
from promised_faults.strangers import Files, ProgramsEnd, WorkersDie

__all__ = ["ALL", "SETS", "Skip"]

ALL = (CoordinatorPauses, ExecutorFreezes, CoordinatorRestarts, CoordinatorWithFolderRestarts,
       ProcessNames, OddTypes, SignedZeros, LongCompile, ProgramsEnd, Files, WorkersDie)

SETS = {
    "all": ALL,
    "library": (LibraryCallCancelled, LibraryCallPastItsDeadline, LibraryCallOfADeadClient),
    "replicas": (PythonReplicas, JaxReplicas),
}
