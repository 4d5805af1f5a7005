"""`airunway doctor`: finds what is wrong with an installation from one snapshot of the cluster.

A snapshot is read once (`gather`); checks are small pure functions over it (`findings.CHECKS`). No provider is named
here: what is theirs comes from their InferenceProviderConfigs and from the plugins that are installed.
"""

from airunway.doctor.findings import CHECKS, DoctorCheck, DoctorFinding, Severity
from airunway.doctor.gather import gather
from airunway.doctor.runner import DoctorReport, run_checks
from airunway.doctor.snapshot import Snapshot, Unseen

__all__ = [
    "CHECKS",
    "DoctorCheck",
    "DoctorFinding",
    "DoctorReport",
    "Severity",
    "Snapshot",
    "Unseen",
    "gather",
    "run_checks",
]
