"""Packs the program and the Python files beside this script into a wheel. Only the standard library.

Usage: wheel.py BINARY OUTPUT-FOLDER [FILE...]

FILEs are licences and lists of contents. $SOURCE_DATE_EPOCH dates all files, so that the same input gives
the same bytes.
"""

import base64
import hashlib
import os
import re
import struct
import sys
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
MACHINES = {62: "x86_64", 183: "aarch64"}
PT_INTERP = 3


def platform(binary):
    """The tag of the systems that run this ELF program (PEP 600, PEP 656)."""
    if binary[:6] != b"\x7fELF\x02\x01":
        sys.exit("wheel: the program is no 64-bit little-endian ELF file")
    machine = MACHINES[struct.unpack_from("<H", binary, 18)[0]]
    table, size, n = struct.unpack_from("<Q", binary, 32) + struct.unpack_from("<HH", binary, 54)
    kinds = [struct.unpack_from("<I", binary, table + i * size)[0] for i in range(n)]
    if PT_INTERP not in kinds:
        # A static program runs on any C library.
        tags = ["manylinux_2_17", "manylinux2014", "musllinux_1_1"]
        return ".".join(f"{tag}_{machine}" for tag in tags)
    versions = re.findall(rb"\0GLIBC_2\.(\d+)(?:\.\d+)?(?=\0)", binary)
    return f"manylinux_2_{max(map(int, versions))}_{machine}"


def metadata(version, notices):
    """The package's description for pip."""
    licences = "\n".join(f"License-File: {path.name}" for path in notices)
    return f"""\
Metadata-Version: 2.4
Name: replicaset-controller
Version: {version}
Summary: A Kubernetes API server for tests, in which Deployments get pods, with fixtures for pytest
License-Expression: Apache-2.0
{licences}
Requires-Python: >=3.10
Provides-Extra: pytest
Requires-Dist: pytest>=7; extra == "pytest"
Provides-Extra: client
Requires-Dist: kubernetes; extra == "client"
Classifier: Framework :: Pytest
Description-Content-Type: text/markdown

{(HERE / "README.md").read_text()}"""


ENTRY_POINTS = """\
[console_scripts]
kubectl-rs_explain = replicaset_controller.__main__:explain

[pytest11]
replicaset_controller = replicaset_controller.pytest_plugin
"""


def main():
    binary, folder = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2])
    version = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    tag = f"py3-none-{platform(binary)}"
    name = f"replicaset_controller-{version}"
    info = f"{name}.dist-info"
    sources = sorted((HERE / "replicaset_controller").glob("*.py"))
    files = [(f"replicaset_controller/{path.name}", path.read_bytes(), 0o644) for path in sources]
    files.append((f"{name}.data/scripts/replicaset-controller", binary, 0o755))
    notices = [ROOT / "LICENSE", *map(Path, sys.argv[3:])]
    files += [(f"{info}/licenses/{path.name}", path.read_bytes(), 0o644) for path in notices]
    tags = "".join(f"Tag: py3-none-{one}\n" for one in platform(binary).split("."))
    wheel = f"Wheel-Version: 1.0\nGenerator: replicaset-controller\nRoot-Is-Purelib: false\n{tags}"
    texts = {"METADATA": metadata(version, notices), "WHEEL": wheel, "entry_points.txt": ENTRY_POINTS}
    files += [(f"{info}/{file}", text.encode(), 0o644) for file, text in texts.items()]
    record = ""
    for path, content, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        record += f"{path},sha256={digest},{len(content)}\n"
    files.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), 0o644))

    date = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", 1 << 30)))[:6]
    output = folder / f"{name}-{tag}.whl"
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content, mode in files:
            entry = zipfile.ZipInfo(path, date)
            entry.create_system, entry.external_attr = 3, (0o100000 | mode) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    print(output)


main()
