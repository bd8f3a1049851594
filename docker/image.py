"""The steps of a Dockerfile, carried out in a folder instead of a container.

What the image makes for itself lies under /src, /opt, /home and /data; those paths are moved into the folder wherever
the Dockerfile names them. The folder is emptied between stages, so a stage has from the one before what
``COPY --from`` brings, at the same path. The base image's Python is one of this machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

from dockerfile import Broken, Stage, pairs

_OWN = re.compile(r"(?<![\w.\-])/(?:src|opt|home|data)(?![\w.\-])")
_ACCOUNTS = ("passwd", "group", "shadow", "gshadow", "login.defs")
# How to reach the package index, as far as this machine has to be told; nothing else of its environment gets in.
_NETWORK = re.compile(r"PIP_.*|(https?|no|all)_proxy|SSL_CERT_FILE|REQUESTS_CA_BUNDLE", re.IGNORECASE)
_STEP_SECONDS = 600
# The user of the image, who must be able to run the interpreter.
_NOBODY = 65_534


class Image:
    """The folder that stands for the file system, and what the instructions so far have set.

    Attributes:
        environment: of every further command.
        user: number of the user who runs them; None for the one who runs this.
    """

    def __init__(self, folder: Path, context: Path) -> None:
        folder.chmod(0o755)
        self.folder, self.context = folder, context
        self.root, self.tools = folder / "root", folder / "tools"
        self.tools.mkdir()
        self._make_tools()
        self._done: dict[str, Path] = {}
        self._begin()

    @property
    def as_root(self) -> bool:
        """Whether this machine lets us become the image's user."""
        return os.geteuid() == 0 and self.python_for_all

    def build(self, stage: Stage) -> None:
        """Carry out the instructions of one stage."""
        self._begin()
        for word, text in stage.instructions:
            if word == "COPY":
                self._copy(text)
            elif word == "RUN":
                self.run(["sh", "-e", "-c", self.moved(text)])
            elif word in ("ENV", "ARG"):
                known = pairs(text if "=" in text else f"{text}=", self.environment)
                self.environment |= {name: self.moved(value) for name, value in known.items()}
            elif word == "WORKDIR":
                self.folder_now = Path(self.moved(text))
                self.folder_now.mkdir(parents=True, exist_ok=True)
            elif word == "USER":
                self._become(text)
        self._done[stage.name] = self.root

    def moved(self, text: str) -> str:
        """The text with the image's own paths moved into the folder."""
        return _OWN.sub(lambda match: f"{self.root}{match[0]}", text)

    def start(self, words: list[str], **how: object) -> subprocess.Popen[bytes]:
        """A process in the image as it is now."""
        accounts: dict[str, object] = {"user": self.user, "group": self.group, "extra_groups": []}
        more = accounts if self.user is not None and self.as_root else {}
        environment = {**self.environment, "HOME": self.home}
        return subprocess.Popen(words, cwd=self.folder_now, env=environment, **more, **how)  # type: ignore[call-overload,no-any-return]

    def run(self, words: list[str], seconds: float = _STEP_SECONDS, status: int = 0) -> str:
        """Run a command to its end; what it writes.

        Raises:
            Broken: it ends with another status, or not in time.
        """
        process = self.start(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        shown = " ".join(words)[-300:]
        try:
            said = process.communicate(timeout=seconds)[0].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            process.kill()
            raise Broken(f"{shown}: not over after {seconds:g} s") from None
        if process.returncode != status:
            raise Broken(f"{shown}: status {process.returncode}, not {status}\n{said[-3000:]}")
        return said

    def _begin(self) -> None:
        """The base image: nothing of ours, and the accounts that every system has."""
        if self.root.exists():
            kept = self.folder / f"stage-{len(self._done)}"
            self.root.rename(kept)
            self._done = {name: kept if path == self.root else path for name, path in self._done.items()}
        (self.root / "etc").mkdir(parents=True)
        for name in _ACCOUNTS:
            if os.access(f"/etc/{name}", os.R_OK):
                shutil.copy(f"/etc/{name}", self.root / "etc" / name)
        kept_environment = {name: value for name, value in os.environ.items() if _NETWORK.fullmatch(name)}
        self.environment = {**kept_environment, "PATH": f"{self.tools}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
        self.folder_now, self.home = self.root, str(self.root)
        self.user: int | None = None
        self.group: int | None = None

    def _make_tools(self) -> None:
        """The base image's python, and a useradd that leaves this machine's accounts alone."""
        found = [path for path in (os.path.realpath(sys.executable), "/usr/bin/python3") if _is_python(path)]
        for_all = [path for path in found if os.geteuid() != 0 or _runs_as_nobody(path)]
        self.python_for_all = bool(for_all)
        if not found:
            raise Broken("no Python with pip is at hand to stand for the base image's")
        _script(self.tools / "python", f'exec "{(for_all or found)[0]}" "$@"')
        _script(
            self.tools / "useradd",
            f'[ "$(id -u)" = 0 ] || exec mkdir -p "{self.root}/home/planner"\n'
            f'exec /usr/sbin/useradd --prefix "{self.root}" "$@"',
        )
        # Only root may give files away.
        _script(
            self.tools / "install",
            '[ "$(id -u)" = 0 ] && exec /usr/bin/install "$@"\nfor last; do :; done\nexec mkdir -p "$last"',
        )

    def _become(self, text: str) -> None:
        self.user = int(text)
        for line in (self.root / "etc" / "passwd").read_text(encoding="utf-8").splitlines():
            _, _, user, group, _, home, _ = line.split(":")
            if user == text:
                self.group, self.home = int(group), self.moved(home)
                return
        if os.geteuid() == 0:
            raise Broken(f"USER {text}: there is no such user in the image")
        self.group, self.home = self.user, self.moved("/home/planner")

    def _copy(self, text: str) -> None:
        words = text.split()
        source = self.context
        if words[0].startswith("--from="):
            stage = words.pop(0).partition("=")[2]
            if stage not in self._done:
                raise Broken(f"COPY --from={stage}: there is no such stage before")
            source = self._done[stage]
        *names, target = words
        place = Path(self.moved(target)) if target.startswith("/") else self.folder_now / target
        for name in names:
            origin = source / name.lstrip("/")
            if not origin.exists():
                raise Broken(f"COPY {name}: there is nothing of that name (.dockerignore?)")
            if origin.is_dir():
                shutil.copytree(origin, place, symlinks=True, dirs_exist_ok=True)
            elif len(names) > 1 or target.endswith("/") or place.is_dir():
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(origin, place)
            else:
                shutil.copy(origin, place)


def copy_context(source: Path, target: Path) -> None:
    """What the engine would be sent: the files that .dockerignore leaves, the last pattern that matches deciding."""
    patterns: list[tuple[bool, re.Pattern[str]]] = []
    for line in (source / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            kept = line.startswith("!")
            patterns.append((kept, _pattern(line.lstrip("!").strip().strip("/"))))
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if relative.parts[0].startswith(".") or not path.is_file():
            continue
        if _is_kept(relative, patterns):
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target / relative)


def _is_kept(relative: Path, patterns: list[tuple[bool, re.Pattern[str]]]) -> bool:
    """A pattern stands for what it names and for all that lies in it."""
    names = [PurePosixPath(*relative.parts[:length]).as_posix() for length in range(1, len(relative.parts) + 1)]
    kept = True
    for decision, pattern in patterns:
        if any(pattern.fullmatch(name) for name in names):
            kept = decision
    return kept


def _pattern(text: str) -> re.Pattern[str]:
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", text)
    return re.compile("".join(words.get(part, re.escape(part)) for part in parts))


def _is_python(path: str) -> bool:
    check = "import sys, venv, pip; sys.exit(sys.version_info < (3, 11))"
    return os.access(path, os.X_OK) and subprocess.run([path, "-I", "-c", check], capture_output=True).returncode == 0


def _runs_as_nobody(path: str) -> bool:
    try:
        command = [path, "-I", "-c", "import json"]
        return subprocess.run(command, user=_NOBODY, cwd="/", capture_output=True).returncode == 0
    except OSError:
        return False


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
