"""Does the image work? Its Dockerfile's steps and compose.yaml, checked on a machine without a container engine.

    python docker/check_image.py [--root FOLDER] [--only image|compose]

Needs Linux, a package index, PyYAML. As root the image's user is the one who serves; otherwise it is whoever runs this.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from composition import check_composition, own_commands
from dockerfile import Broken, Stage, command, health_check, pairs, stages
from image import Image, copy_context

Process = subprocess.Popen[bytes]

_ENDS_WITHIN_S = 20.0
_QUESTION = {"model": "llama-3.2-1b", "cluster": "dgx-h100", "devices": 8, "global_batch_size": 64, "seq_len": 4096}
_DECOY = 'raise ImportError("a folder beside the command shadows a package of ours")\n'


def main() -> int:
    """0 when nothing is wrong, else 1 and the reason on stderr."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--only", choices=("image", "compose"))
    given = parser.parse_args()
    try:
        if given.only != "image":
            check_composition(given.root / "docker" / "compose.yaml")
            _say("compose.yaml: what it refers to is there")
        if given.only != "compose":
            with tempfile.TemporaryDirectory(prefix="planner-image-") as folder:
                _check_image(given.root, Path(folder))
    except Broken as error:
        sys.stderr.write(f"image check: {error}\n")
        return 1
    return 0


def _check_image(root: Path, folder: Path) -> None:
    all_stages = stages(root / "Dockerfile")
    last = all_stages[-1]
    entry = command(last.last("ENTRYPOINT"))
    served = [*entry, *command(last.last("CMD"))]
    health, options = health_check(last.last("HEALTHCHECK"))
    _check_settings(last)

    context = folder / "context"
    copy_context(root, context)
    image = Image(folder, context)
    for stage in all_stages:
        started = time.monotonic()
        image.build(stage)
        _say(f"stage {stage.name or 'of the image'}: built in {time.monotonic() - started:.0f} s")
    for tool in ("pip", "gcc"):
        if (image.root / "opt" / "planner" / "bin" / tool).exists():
            raise Broken(f"{tool} is in the final stage's environment")
    # Where a command is run, any folder may lie: none of them may be taken for ours.
    for name in ("db", "api"):
        (image.folder_now / name).mkdir()
        (image.folder_now / name / "__init__.py").write_text(_DECOY, encoding="utf-8")

    for words in own_commands(root / "docker" / "compose.yaml"):
        image.run([*entry, *words, "--help"], seconds=60)
    port = _free_port()
    image.environment["PLANNER_PORT"] = str(port)
    said = image.run(served, seconds=60, status=2)
    _say(f"without API keys it refuses to start: {said.strip().splitlines()[-1]}")
    made = image.run([*entry, "keys", "create", "--name", "check", "--scope", "write", "--json"], seconds=60)
    key = json.loads(made.splitlines()[-1])["secret"]
    _serve(image, served, health, options, port, key)
    _say(f"it served as user {image.user if image.as_root else 'who runs this check'}, asked and ended as it should")


def _check_settings(last: Stage) -> None:
    """What can be told without building anything."""
    user = last.last("USER")
    if not user.isdecimal() or user == "0":
        raise Broken(f"USER {user}: the number of a user other than root is expected")
    if last.last("EXPOSE") != "8000":
        raise Broken("EXPOSE: 8000, the port of `planner serve`, is expected")
    if pairs(last.last("ENV"), {}).get("PYTHONSAFEPATH") != "1":
        raise Broken("ENV: PYTHONSAFEPATH=1 is missing")
    if not any(name.startswith("org.opencontainers.image.") for name in pairs(last.last("LABEL"), {})):
        raise Broken("LABEL: none of the labels that registries read is there")


def _serve(image: Image, served: list[str], health: list[str], options: dict[str, float], port: int, key: str) -> None:
    """Start what the image starts by default; it has to become healthy, answer, show pages, and end when told to."""
    log = image.folder / "serve.log"
    with log.open("wb") as written:
        process = image.start(served, stdout=written, stderr=written, stdin=subprocess.DEVNULL)
    try:
        _until_healthy(image, health, options, process)
        base = f"http://127.0.0.1:{port}"
        answer = json.loads(_get(f"{base}/v1/searches", key, _QUESTION))
        if answer.get("status") != "optimal":
            raise Broken(f"a question is not answered: {json.dumps(answer)[:500]}")
        # Not before: a process that searches may start later than the server.
        _get(f"{base}/readyz", None)
        page = _get(f"{base}/searches/{answer['id']}", key).decode()
        sheet = page.partition('rel="stylesheet" href="')[2].partition('"')[0]
        if "Proven best" not in page or not _get(base + sheet, None):
            raise Broken("the page of a search does not show its answer")
        process.send_signal(signal.SIGTERM)
        if process.wait(_ENDS_WITHIN_S) != 0:
            raise Broken(f"told to end, it did so with status {process.returncode}")
    except (Broken, subprocess.TimeoutExpired, OSError) as error:
        raise Broken(f"{error}\n{log.read_text(encoding='utf-8', errors='replace')[-3000:]}") from error
    finally:
        process.kill()
        process.wait()


def _until_healthy(image: Image, health: list[str], options: dict[str, float], process: Process) -> None:
    """Run the health check until it passes, as long as an engine would let it fail."""
    end = time.monotonic() + options.get("start-period", 0.0) + options["interval"] * options.get("retries", 3.0)
    while True:
        try:
            image.run(health, seconds=options["timeout"])
        except Broken:
            if process.poll() is not None:
                raise Broken(f"the server ended with status {process.returncode}") from None
            if time.monotonic() > end:
                raise
            time.sleep(0.5)
        else:
            return


def _get(url: str, key: str | None, body: dict[str, Any] | None = None) -> bytes:
    headers = {"Prefer": "wait=30", "Content-Type": "application/json"} if body else {}
    headers |= {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as error:
        raise Broken(f"{url}: {error.code} {error.read()[:500].decode('utf-8', 'replace')}") from None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
