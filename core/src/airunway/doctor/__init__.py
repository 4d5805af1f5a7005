"""`airunway doctor`: finds what is wrong with an installation from one snapshot of the cluster.

`gather` reads the snapshot once; checks are small pure functions of it (`findings.CHECKS`). No provider is named in the
code: facts about providers come from their InferenceProviderConfigs and from the installed plugins.
"""

from airunway.doctor.findings import CHECKS
from airunway.doctor.gather import gather
from airunway.doctor.report import DoctorReport, run_checks
from airunway.doctor.snapshot import Snapshot

__all__ = [
    "CHECKS",
    "DoctorReport",
    "Snapshot",
    "gather",
    "run_checks",
]
