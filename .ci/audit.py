"""Are there known vulnerabilities in the versions of constraints.txt? Asks pip-audit, and does not
take silence for an answer.

    python .ci/audit.py constraints.txt

pip-audit passes over versions of which its service knows nothing, says "No known vulnerabilities
found", and ends with 0: behind a mirror without advisories that is so for all of them. Here each is
counted. Exit codes: 0, all were looked up and none is known to be vulnerable; 1, some are; 3, some
or all could not be looked up.
"""

from __future__ import annotations

import json
import subprocess
import sys

ALL, VULNERABLE, UNKNOWN = 0, 1, 3
SECONDS = 900


def told(report: str, error: str) -> tuple[int, list[str]]:
    """The exit code and what to say, by pip-audit's report in JSON and its standard error."""
    try:
        found = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        why = (error.strip() or "it gave no report").splitlines()[-1]
        return UNKNOWN, [f"NOT CHECKED: the advisory service could not be asked: {why[:300]}"]
    skipped = [one for one in found if "skip_reason" in one]
    bad = [(one, flaw) for one in found for flaw in one.get("vulns", ())]
    lines = [
        (
            f"{one['name']} {one['version']}: {flaw['id']}, mended in "
            f"{', '.join(flaw.get('fix_versions', ())) or 'no version'}"
        )
        for one, flaw in bad
    ]
    if skipped or not found:
        lines.append(
            f"NOT CHECKED: {len(skipped)} of {len(found)} versions, which the advisory service "
            "does not know"
        )
        lines += [f"  {one['name']}" for one in skipped[:10]] + (
            ["  …"] if len(skipped) > 10 else []
        )
    lines.append(
        f"{len(found) - len(skipped)} versions were looked up, {len(bad)} vulnerabilities are known"
    )
    return VULNERABLE if bad else UNKNOWN if skipped or not found else ALL, lines


def main(constraints: str) -> int:
    """Asks pip-audit of this environment."""
    command = (
        sys.executable,
        "-m",
        "pip_audit",
        "--requirement",
        constraints,
        "--no-deps",
        "--disable-pip",
        "--format",
        "json",
    )
    try:
        done = subprocess.run(
            (*command, "--progress-spinner", "off"),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        report, error = done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        report, error = "", f"no answer in {SECONDS} s"
    code, lines = told(report, error)
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
