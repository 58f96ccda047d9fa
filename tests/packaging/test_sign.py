"""The checksums of a release are signed: a changed file, list or key is noticed."""

import os
import subprocess
from pathlib import Path

from tests.support.namespaces import REPOSITORY


def run(
    *words: str | Path, cwd: Path, given: bytes = b"", key: str = ""
) -> subprocess.CompletedProcess[bytes]:
    environment = {name: text for name, text in os.environ.items() if name != "SIGN_KEY"}
    environment |= {"SIGN_KEY": key} if key else {}
    return subprocess.run(words, cwd=cwd, input=given, capture_output=True, check=False, env=environment)


def sign(folder: Path, key: str = "") -> subprocess.CompletedProcess[bytes]:
    return run(REPOSITORY / "packaging/sign.sh", folder, cwd=REPOSITORY, key=key)


def test_release_without_a_key_is_refused(tmp_path: Path) -> None:
    done = sign(tmp_path)
    assert done.returncode != 0
    assert b"make release SIGN_KEY=FILE" in done.stderr
    assert not any(tmp_path.iterdir())


def test_key_that_is_missing_or_none_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("no key\n")
    for key, words in (("missing", b"there is no file"), ("words", b"holds no OpenSSH private key")):
        done = sign(tmp_path, str(tmp_path / key))
        assert (done.returncode, words in done.stderr) == (1, True), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["words"]


def test_signed_checksums_are_verified_by_openssh_alone(tmp_path: Path) -> None:
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / "rspdns.deb").write_text("a package")
    for name in ("key", "other"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", name, cwd=tmp_path)
        public = (tmp_path / f"{name}.pub").read_text()
        (tmp_path / f"{name}.signers").write_text(f"release {public}")
    assert sign(folder, str(tmp_path / "key")).returncode == 0

    def is_right(signers: str = "key") -> bool:
        verify = ("-Y", "verify", "-f", tmp_path / f"{signers}.signers", "-I", "release", "-n", "rspdns")
        sums = (folder / "SHA256SUMS").read_bytes()
        signed = run("ssh-keygen", *verify, "-s", "SHA256SUMS.sig", cwd=folder, given=sums)
        summed = run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=folder)
        return signed.returncode == summed.returncode == 0

    assert is_right()
    assert not is_right("other")
    assert (folder / "signers").read_text().split()[2] == (tmp_path / "key.pub").read_text().split()[0]
    assert " signers" in (folder / "SHA256SUMS").read_text()
    (folder / "rspdns.deb").write_text("another package")
    assert not is_right()
    run("sh", "-c", "sha256sum rspdns.deb >SHA256SUMS", cwd=folder)
    assert not is_right()
    assert sign(folder, "none").returncode == 0
    assert not (folder / "SHA256SUMS.sig").exists()
