"""`examples/webarena_reset.sh` gives the commands of WebArena's guide, for the sites it is told."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

ADDRESSES = {
    "SHOPPING": "http://h:7770",
    "SHOPPING_ADMIN": "http://h:7780/admin",
    "REDDIT": "http://h:9999",
    "GITLAB": "http://h:8023",
}
# Records its words; the first of each kind fails where FAILS names it.
DOUBLE = """#!/bin/sh
echo "$(basename "$0") $*" >>"$LOG"
case "$*" in *"${FAILS:-nothing}"*) [ -e "$LOG.once" ] || { touch "$LOG.once"; exit 1; } ;; esac
"""


def reset(folder: Path, sites: str, **more: str) -> tuple[int, list[str]]:
    for name in ("docker", "curl"):
        (folder / name).write_text(DOUBLE)
        (folder / name).chmod(0o755)
    environment = {
        **ADDRESSES,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "LOG": str(folder / "log"),
        "PRILL_SITES": sites,
        "PAUSE": "0",
        **more,
    }
    done = subprocess.run(
        [ROOT / "examples/webarena_reset.sh"], env=environment, capture_output=True, check=False
    )
    log = folder / "log"
    return done.returncode, log.read_text().splitlines() if log.exists() else []


def test_each_site_is_configured_as_the_guide_does(tmp_path: Path) -> None:
    code, said = reset(tmp_path, "gitlab,shopping_admin", FAILS="--output")
    assert code == 0
    gitlab, admin = said[: (end := said.index("docker rm --force shopping_admin"))], said[end:]
    assert gitlab[0] == "docker rm --force gitlab"
    assert "external_url 'http://h:8023'" in gitlab[2] and gitlab[3].endswith("reconfigure")
    assert sum(line.startswith("curl") for line in gitlab) == 2, "asked again until it answers"
    assert "--base-url=http://h:7780" in admin[3]
    assert 'value="http://h:7780/"' in admin[4]
    assert [line.rpartition("security/")[2] for line in admin[5:7]] == [
        "password_is_forced 0",
        "password_lifetime 0",
    ]
    assert admin[-1].endswith("http://h:7780/admin")
    assert not any("forum" in line or "magento2" in line for line in gitlab)


@pytest.mark.parametrize("sites", ["map,wikipedia", ""])
def test_what_keeps_nothing_is_left_alone(tmp_path: Path, sites: str) -> None:
    assert reset(tmp_path, sites) == (0, [])


def test_failed_command_fails_the_reset(tmp_path: Path) -> None:
    code, said = reset(tmp_path, "reddit", FAILS="run --name forum")
    assert code == 1 and len(said) == 2
