"""`examples/gpu`: its dry run, its processes and TERM, the Slurm script with doubles of Slurm, the
other files as documents.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.refine.training.checkpoints import last_checkpoint
from tests.support.chromium import need_chromium
from tests.support.paths import ROOT
from tests.support.refine.launching import needs_training
from tests.support.warm import ONE_THREAD, TRAINING, warm_commands

GPU = ROOT / "examples/gpu"
ENVIRONMENT = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def write_job(tiny_model: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """A job in its own folder, on a tiny model, with four rows; the arguments replace settings of
    the captioner.
    """
    for number in range(4):
        Image.new("RGB", (100, 90), (60 * number, 0, 0)).save(tmp_path / f"{number}.png")
    asked = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Describe."}]}
    rows = [
        {
            "images": [f"{number}.png"],
            "prompt": [asked],
            "completion": [
                {"role": "assistant", "content": [{"type": "text", "text": f"page {number}"}]}
            ],
            "task": f"t{number}",
        }
        for number in range(4)
    ]
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )

    def write(**changed: Any) -> Path:
        job = tomllib.loads((GPU / "job.toml").read_text(encoding="utf-8"))
        model = str(tiny_model("qwen3_vl"))
        files = {
            "rows": str(tmp_path / "rows.jsonl"),
            "output": str(tmp_path / "out"),
            "model": model,
        }
        captioner = {**job["captioner"], **files, "batch": 4, **changed}
        study = {**job["study"], "output": str(tmp_path / "study")}
        study["policy"] |= {"model": f"local:{model}"}
        study["training"] |= {"model": model}
        tables = {"job": job["job"], "captioner": captioner, "study": study}
        text = "".join(_toml(name, table) for name, table in tables.items())
        (tmp_path / "job.toml").write_text(text, encoding="utf-8")
        return tmp_path / "job.toml"

    return write


def _toml(name: str, table: dict[str, Any]) -> str:
    """A table whose tables stand in it as inline ones."""

    def value(given: Any) -> str:
        if isinstance(given, dict):
            return "{" + ", ".join(f"{key} = {value(one)}" for key, one in given.items()) + "}"
        return (
            "[" + ", ".join(map(value, given)) + "]"
            if isinstance(given, list)
            else json.dumps(given)
        )

    return f"[{name}]\n" + "".join(f"{key} = {value(one)}\n" for key, one in table.items())


# The program, which starts its processes by this interpreter.
BY = "import runpy, sys; sys.executable = sys.argv.pop(1); del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"  # noqa: E501


@pytest.fixture(scope="module")
def warm() -> Iterator[Path]:
    """An interpreter that has imported what training imports."""
    with warm_commands(*TRAINING, **ONE_THREAD) as folder:
        yield folder / "python"


def run(
    job: Path, *words: str, python: Path = Path(sys.executable)
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BY, str(python), str(GPU / "run.py"), str(job), *words]
    return subprocess.run(
        command, env=ENVIRONMENT, cwd=job.parent, capture_output=True, text=True, check=False
    )


@needs_training
@pytest.mark.slow
@pytest.mark.parametrize("gpus", ["1", "4"])
def test_dry_run_tells_gpus_memory_disk_and_hours(
    write_job: Callable[..., Path], warm: Path, gpus: str
) -> None:
    words = ("captioner", "--gpus", gpus, "--dry-run")
    shown = run(write_job(steps=10**11), *words, python=warm)
    assert shown.returncode == 0, shown.stderr
    assert f"gpus     {gpus}xH200" in shown.stdout and f"on each of {gpus})" in shown.stdout
    assert re.search(r"^memory +about .* on each device$", shown.stdout, re.MULTILINE)
    assert re.search(r"^disk +about ", shown.stdout, re.MULTILINE)
    assert re.search(r"roughly \d+ h \d\d min on H200", shown.stdout)


@needs_training
@pytest.mark.slow
def test_dry_run_refuses_what_cannot_fit(
    write_job: Callable[..., Path], tiny_model: Callable[[str], Path], warm: Path, tmp_path: Path
) -> None:
    """All weights of a large model do not fit one GPU, and do fit four that share them."""
    large = Path(shutil.copytree(tiny_model("qwen3_vl"), tmp_path / "large"))
    config = json.loads((large / "config.json").read_text("utf-8"))
    config["text_config"]["vocab_size"] = 16 * 10**9 // config["text_config"]["hidden_size"]
    (large / "config.json").write_text(json.dumps(config), encoding="utf-8")
    job = write_job(model=str(large), method="full", preset="captioner-paper", epochs=1)
    refused = run(job, "captioner", "--gpus", "1", "--dry-run", python=warm)
    assert refused.returncode == 2 and re.search(
        r"needs about \d+ GB, but the device has 141 GB", refused.stderr
    ), refused.stderr
    shared = run(job, "captioner", "--gpus", "4", "--dry-run", python=warm)
    # What checkpoints of it take is more than a small disk has, and is told after the memory.
    assert shared.returncode == 0 or "checkpoints need about" in shared.stderr, shared.stderr


def write_rows(folder: Path) -> None:
    """Writes the captioner's rows where `job.toml` names them."""
    (folder / "data").mkdir()
    for file in folder.glob("*.png"):
        shutil.copy(file, folder / "data")
    shutil.copy(folder / "rows.jsonl", folder / "data")


def run_as_it_stands(
    folder: Path, part: str, job: str = "job.toml"
) -> subprocess.CompletedProcess[str]:
    """Runs a job unmodified, with a folder of its own for what Hugging Face caches."""
    return subprocess.run(
        [sys.executable, str(GPU / "run.py"), str(GPU / job), part, "--dry-run"],
        env={**ENVIRONMENT, "HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@needs_training
@pytest.mark.slow
@pytest.mark.parametrize("part", ["captioner", "study"])
@pytest.mark.parametrize(("job", "gpu"), [("job.toml", "H200"), ("h100.toml", "H100")])
def test_job_plans_as_it_stands(
    write_job: Callable[..., Path],
    tiny_model: Callable[[str], Path],
    tmp_path: Path,
    job: str,
    gpu: str,
    part: str,
) -> None:
    """The model is found by its name in the cache, as `hf download` lays it out."""
    need_chromium("miniwob")
    write_job()
    write_rows(tmp_path)
    model = tmp_path / "cache/hub/models--Qwen--Qwen3-VL-8B-Instruct"
    shutil.copytree(tiny_model("qwen3_vl"), model / "snapshots/0")
    (model / "refs").mkdir()
    (model / "refs/main").write_text("0")
    (python := tmp_path / "vllm/bin/python").parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    shown = run_as_it_stands(tmp_path, part, job)
    assert shown.returncode == 0, shown.stderr
    assert f"gpus     1x{gpu}" in shown.stdout
    assert re.search(rf"[\d.]+ of \d+ GB of one {gpu}|memory +about", shown.stdout)


@needs_training
@pytest.mark.slow
@pytest.mark.parametrize("part", ["captioner", "study"])
def test_job_without_its_model_says_how_to_get_it(
    write_job: Callable[..., Path], tmp_path: Path, part: str
) -> None:
    write_job()
    write_rows(tmp_path)
    refused = run_as_it_stands(tmp_path, part)
    assert refused.returncode == 2
    assert "HF_HUB_OFFLINE" in refused.stderr
    assert "hf download Qwen/Qwen3-VL-8B-Instruct" in refused.stderr


@needs_training
@pytest.mark.slow
def test_dry_run_of_a_study_tells_its_training(write_job: Callable[..., Path], warm: Path) -> None:
    need_chromium("miniwob")
    shown = run(write_job(), "study", "--gpus", "8", "--dry-run", python=warm)
    assert shown.returncode == 0, shown.stderr
    assert "gpus     8xH200" in shown.stdout and "training seeds: 4" in shown.stdout
    told = (
        "one training with rows of 4,096 tokens: about [\\d.]+ of 141 GB of one H200, .* GB "
        "of disk, [\\d.]+ h"
    )
    assert re.search(told, shown.stdout)
    assert not (write_job().parent / "study").exists()


@needs_training
@pytest.mark.slow
def test_term_reaches_every_process_once(write_job: Callable[..., Path], tmp_path: Path) -> None:
    """Two processes train together; a second TERM, as a scheduler sends it too, does not cut the
    checkpoint short.
    """
    job = write_job(steps=100_000, checkpoint_every=1, device="cpu", keep_checkpoints=1)
    command = [sys.executable, str(GPU / "run.py"), str(job), "captioner", "--gpus", "2"]
    with subprocess.Popen(
        command, env=ENVIRONMENT, cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        ended = threading.Event()
        while last_checkpoint(tmp_path / "out") is None and process.poll() is None:
            ended.wait(0.05)
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert "of 100000" in said and last_checkpoint(tmp_path / "out") is not None
    assert json.loads((tmp_path / "out/training.json").read_bytes())["processes"] == 2


@needs_training
@pytest.mark.slow
def test_processes_that_wait_for_a_failed_one_end(
    write_job: Callable[..., Path], tmp_path: Path
) -> None:
    done = run(
        write_job(model=str(tmp_path / "no such model"), device="cpu"), "captioner", "--gpus", "2"
    )
    assert done.returncode == 2 and "no such model" in done.stderr


# The Slurm script


FAKE_RUN = """#!/bin/bash
echo "run $*" >>"$LOG"
case "$*" in *--dry-run*) exit "${DRY:-0}" ;; esac
[ -z "${ENDS:-}" ] || exit "$ENDS"
trap 'echo checkpoint >>"$LOG"; exit 130' TERM
mkfifo "$LOG.never"
exec 3<>"$LOG.never"
echo started >>"$LOG"
while true; do read -r -t 1 <&3; done
"""


@pytest.fixture
def slurm(tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """The script as Slurm runs it: `srun` and `scontrol` are doubles, and so is Python."""
    srun = '#!/bin/bash\necho "srun $1" >>"$LOG"\nshift\nexec "$@"\n'
    scontrol = '#!/bin/bash\necho "scontrol $*" >>"$LOG"\n'
    (tmp_path / "bin").mkdir()
    for name, text in {"srun": srun, "scontrol": scontrol, "python": FAKE_RUN}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)

    def start(**more: str) -> subprocess.Popen[bytes]:
        path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
        environment = {
            "PATH": path,
            "LOG": str(tmp_path / "log"),
            "SLURM_JOB_ID": "17",
            "SLURM_GPUS_ON_NODE": "8",
            **more,
        }
        return subprocess.Popen(
            ["bash", str(GPU / "slurm.sh"), "job.toml", "captioner"], env=environment, cwd=tmp_path
        )

    return start


def log(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines() if (folder / "log").exists() else []


def test_slurm_script_requeues_after_term(
    slurm: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process, ended = slurm(), threading.Event()
    while "started" not in log(tmp_path) and process.poll() is None:
        ended.wait(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    words = "run examples/gpu/run.py job.toml captioner --gpus 8"
    assert log(tmp_path) == [
        f"{words} --dry-run",
        "srun --kill-on-bad-exit=1",
        words,
        "started",
        "checkpoint",
        "scontrol requeue 17",
    ]


def test_slurm_script_ends_as_its_run_does(
    slurm: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    assert [slurm(ENDS=code).wait(60) for code in ("0", "3", "2")] == [0, 3, 2]
    assert not [line for line in log(tmp_path) if line.startswith("scontrol")]


def test_slurm_script_runs_nothing_that_cannot_fit(
    slurm: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    assert slurm(DRY="2").wait(60) == 2
    assert [line.split()[0] for line in log(tmp_path)] == ["run"]


def test_slurm_script_is_sound() -> None:
    text = (GPU / "slurm.sh").read_text(encoding="utf-8")
    assert subprocess.run(["bash", "-n", str(GPU / "slurm.sh")], check=False).returncode == 0
    options = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", text, re.MULTILINE))
    assert (
        "requeue" in options
        and options["signal"].startswith("B:TERM@")
        and options["open-mode"] == "append"
    )
    assert os.access(GPU / "slurm.sh", os.X_OK)


# The other files


def test_fsdp_file_is_one_of_accelerate() -> None:
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    config = config_args.ClusterConfig.from_yaml_file(str(GPU / "fsdp.yaml"))
    assert config.distributed_type.value == "FSDP" and config.num_processes == 8
    assert config.fsdp_config["fsdp_version"] == 2


def test_kubernetes_job_stops_as_run_does() -> None:
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load((GPU / "kubernetes.yaml").read_text(encoding="utf-8"))
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (job["kind"], pod["restartPolicy"]) == ("Job", "Never")
    assert container["args"][-1] == str(container["resources"]["limits"]["nvidia.com/gpu"])
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }
    ends = job["spec"]["podFailurePolicy"]["rules"][1]["onExitCodes"]
    # 130, stopped, is begun again
    assert ends["values"] == [2] and ends["containerName"] == container["name"]


def test_dockerfile_starts_run_without_a_shell() -> None:
    text = (GPU / "Dockerfile").read_text(encoding="utf-8")
    entry = json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)[1])  # type: ignore[index]
    assert entry[1:] == ["gpu/run.py", "gpu/job.toml"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    wanted = re.search(r"/opt/prill\[([\w,]+)\]", text)
    assert wanted and set(wanted[1].split(",")) <= extras.keys()
