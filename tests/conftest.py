"""What tests of several folders need of the machine."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.support.android import FakeAdb
from tests.support.connections import warn_of_unclosed
from tests.support.paths import ROOT, TESTS

# Another worker may hold an example up for longer than its usual 0.2 s.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")

# What starts tests in the background may have told them to ignore Ctrl-C, and their child processes
# would, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

warn_of_unclosed()

_declared: list[Any] = []  # the declarations last as long as this object


@pytest.fixture(scope="session")
def torchvision_beside_cpu_torch() -> Callable[[], None]:
    """Makes the usual torchvision wheel importable beside a torch without CUDA, by declaring two of
    its operators.

    easyocr and transformers import torchvision but call neither. Without the declarations that
    import fails: nms does not exist.
    """

    def declare() -> None:
        import torch

        if (
            importlib.util.find_spec("torchvision") is None
            or torch.version.cuda is not None
            or _declared
        ):
            return
        try:
            import torchvision  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: F401
        except RuntimeError:
            library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
            for operator in ("nms", "qnms"):
                library.define(
                    f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                )
            _declared.append(library)

    return declare


@pytest.fixture(scope="session")
def tiny_model(
    tmp_path_factory: pytest.TempPathFactory, torchvision_beside_cpu_torch: Callable[[], None]
) -> Callable[[str], Path]:
    """The folder of a tiny random model of a kind, `qwen2`, `qwen2_5_vl` or `qwen3_vl`, made once;
    see tests/support/models/tiny.py.

    What else `tiny.build` takes may stand beside the kind.
    """
    if not all(importlib.util.find_spec(name) for name in ("torch", "transformers")):
        pytest.skip("not installed: pip install '.[local]'")

    @functools.cache
    def folder(kind: str, **more: Any) -> Path:
        import torch

        from tests.support.models import tiny

        # several threads wait for each other actively, and crawl where something else wants a core
        torch.set_num_threads(1)
        torchvision_beside_cpu_torch()
        return tiny.save(*tiny.build(kind, **more), tmp_path_factory.mktemp("tiny") / kind)

    return folder


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hugging Face's libraries look for nothing on their hub."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


# Files here take long: some of them wait for browsers and phones, some compute.
WAITING = (
    "emulators", "annotate", "report", "view", "test_accessibility.py", "test_payloads.py",
)  # fmt: skip
COMPUTING = (
    "test_examples.py", "test_examples_of_training.py", "test_gpu_examples.py", "test_documents.py",
    "test_vllm_real.py", "refine", "commands", "models", "fuzz", "papers", "batches",
)  # fmt: skip


def pytest_collection_finish() -> None:
    """Takes what was collected, thousands of tests, out of the garbage collector's sight: a
    collection, of which studies have one a stage, takes half a second with them."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For several workers: the long files first, so that in the end no worker is alone with one,
    and those that wait beside those that compute."""
    if not hasattr(config, "workerinput"):
        return
    rooms = {item.path: item.path.relative_to(TESTS).parts[1:] for item in items}
    places: dict[Path, float] = {}  # of each file among those of its kind
    for kind in (WAITING, COMPUTING):
        found = [path for name in kind for path in rooms if name in (rooms[path][0], path.name)]
        places |= {path: place / len(found) for place, path in enumerate(found)}
    items.sort(key=lambda item: places.get(item.path, 1))


# Tests here end browsers by name, or look for what only the whole Chromium has.
WITH_WINDOWS = ("e2e/emulators/browser/test_faults.py", "e2e/emulators/browser/test_windows.py")


@pytest.fixture(scope="module", autouse=True)
def chromium_without_windows(request: pytest.FixtureRequest) -> Iterator[None]:
    """Chromium's small twin for the tests of a file, where it is installed: an episode takes a
    fifth of the processor.
    """
    shell = shutil.which("chromium-headless-shell")
    place = request.path.relative_to(TESTS).as_posix()
    with pytest.MonkeyPatch.context() as patch:
        if shell is not None and "PRILL_CHROMIUM" not in os.environ and place not in WITH_WINDOWS:
            patch.setenv("PRILL_CHROMIUM", shell)
        yield


@pytest.fixture(scope="session")
def own_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 with its key, signed by nobody else."""
    if shutil.which("openssl") is None:
        pytest.skip("the program openssl, which makes the certificate, is not there")
    path = tmp_path_factory.mktemp("certificate") / "loopback.pem"
    words = (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=prill -addext "
        "subjectAltName=IP:127.0.0.1"
    )
    subprocess.run(
        ["openssl", *words.split(), "-keyout", path, "-out", path], check=True, capture_output=True
    )
    return path


@pytest.fixture(scope="session")
def adb_path() -> str:
    """The real adb binary."""
    home = os.environ.get("ANDROID_HOME")
    found = shutil.which("adb", path=f"{home}/platform-tools") if home else None
    found = found or shutil.which("adb")
    if found is None:
        pytest.skip("adb is not installed: apt-get install adb")
    return found


@pytest.fixture(scope="session")
def android_home(adb_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for ANDROID_HOME that holds platform-tools/adb and nothing else."""
    folder = tmp_path_factory.mktemp("android-home")
    (folder / "platform-tools").mkdir()
    (folder / "platform-tools" / "adb").symlink_to(Path(adb_path).resolve())
    return folder


@pytest.fixture(scope="session")
def adb_ports() -> Iterator[list[int]]:
    """Ports of fake adb servers. An adb client that comes too late starts a real server there: that
    one is ended last.
    """
    ports: list[int] = []
    yield ports
    for port in ports:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as connection:
                connection.sendall(b"0009host:kill")
                connection.recv(4)
        except OSError:
            pass


@pytest.fixture
def fake_adb(adb_path: str, adb_ports: list[int]) -> Iterator[FakeAdb]:
    """A fake adb server with the phone emulator-5554, for the real adb binary."""
    with FakeAdb() as adb:
        adb_ports.append(adb.port)
        yield adb


@pytest.fixture(scope="session")
def appium_server(
    android_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., AbstractContextManager[tuple[str, subprocess.Popen[bytes]]]]:
    """Starts real Appium 3 servers with the UiAutomator2 driver and these options; gives the URL
    and the process.

    Appium is found in $PRILL_APPIUM_DIR, else in .venv/appium, where `make test-all` puts it:
    `node_modules/appium` and, with the driver, `home`.
    """
    if importlib.util.find_spec("appium") is None:
        pytest.skip("the Appium client is not installed: pip install '.[android]'")
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: Appium needs Node.js 20.19 or newer")
    folder = Path(os.environ.get("PRILL_APPIUM_DIR") or ROOT / ".venv" / "appium")
    main, home = folder / "node_modules" / "appium" / "index.js", folder / "home"
    if not main.exists() or not (home / "node_modules" / "appium-uiautomator2-driver").is_dir():
        pytest.skip(
            f"no Appium with its UiAutomator2 driver in {folder}: `make test-all` installs it, or "
            "set PRILL_APPIUM_DIR"
        )

    @contextmanager
    def start(*options: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
        log = tmp_path_factory.mktemp("appium") / "log.txt"
        url = f"http://127.0.0.1:{_free_port()}"
        command = [
            node,
            str(main),
            "server",
            "--address",
            "127.0.0.1",
            "--port",
            url.rpartition(":")[2],
            *options,
        ]
        environment = {**os.environ, "APPIUM_HOME": str(home), "ANDROID_HOME": str(android_home)}
        environment.pop("ANDROID_SDK_ROOT", None)
        with log.open("wb") as output:
            server = subprocess.Popen(
                [*command, "--log-no-colors", "--log-timestamp"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
        try:
            _wait_until_up(url, server, log)
            yield url, server
        finally:
            # With the adb clients that it started. Asked to end, it would wait for phones that
            # tests have broken.
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()

    return start


@pytest.fixture(scope="session")
def appium(
    appium_server: Callable[..., AbstractContextManager[tuple[str, subprocess.Popen[bytes]]]],
) -> Iterator[str]:
    """The URL of an Appium server that allows shell commands; give `appium:adbPort` to say which
    phones it sees.
    """
    with appium_server("--allow-insecure=uiautomator2:adb_shell") as (url, _):
        yield url


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_up(
    url: str, server: subprocess.Popen[bytes], log: Path, seconds: float = 120
) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/status", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    pytest.fail(
        "Appium did not start:\n" + log.read_text(encoding="utf-8", errors="replace")[-3000:]
    )
