"""H5: evaluating on ever new values leaves no memory behind. ``benchmarks/cel_memory.py`` does it for longer."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

LIMIT_MIB = 4.0
"""With cel-cpp comparing quantities, 30,000 rules left 41 MiB behind, and 2,000 validations with eight sizes 45 MiB."""

SCRIPT = """
    import gc, os
    from pathlib import Path
    from airunway.api import names
    from airunway.selection.facts import request_of
    from airunway.selection.provider import evaluate_rules
    from airunway.validation import validate

    def rules(number):
        rule = "quantity(spec.resources.memory).isGreaterThan(quantity('16Gi'))"
        [verdict] = evaluate_rules([(rule, 1)], request_of({"resources": {"memory": f"{number}Mi"}}))
        assert verdict.value is (number > 16 * 1024), verdict

    def ceilings(number):
        volumes = [{"name": f"v{n}", "mountPath": f"/mnt/{n}", "size": f"{number * 8 + n}Mi"} for n in range(8)]
        spec = {"model": {"id": "a", "storage": {"volumes": volumes}}, "resources": {"memory": f"{number}Mi"}}
        metadata = {"name": "llama"}
        assert not validate(
            {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata, "spec": spec}
        )

    def resident():
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    for number in range(1, 1000):
        WORK(number)
    before = resident()
    for number in range(1000, 1000 + TIMES):
        WORK(number)
    print(resident() - before)
"""


@pytest.mark.parametrize(("work", "times"), [("rules", 10_000), ("ceilings", 600)])
def test_h5_memory_stays_flat_over_distinct_quantities(work: str, times: int) -> None:
    script = textwrap.dedent(SCRIPT).replace("WORK", work).replace("TIMES", str(times))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < LIMIT_MIB
