# SPDX-License-Identifier: BSD-3-Clause
"""What `meson install` puts down: programs that find their library, a library that others find."""
import os
import re
import subprocess

import rig
from rig import expect, expect_equal, test

TREE = f"{rig.WORK}/tree"
PROGRAMS = ["orield", "orielctl", "oriel-target", "oriel-perf"]


def run(*words, **options):
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, **options)


def install():
    result = run("meson", "install", "-C", rig.build_root(), "--no-rebuild", "--destdir", TREE)
    expect(result.returncode == 0, f"meson install: {result.stdout}{result.stderr}")
    return [os.path.join(place, name)[len(TREE):] for place, _, names in os.walk(TREE)
            for name in names]


@test("B132: installed programs run without a word about where their library is")
def programs():
    files = install()
    for name in PROGRAMS:
        path = [file for file in files if file.endswith(f"/bin/{name}")]
        expect_equal(len(path), 1, f"files named {name} in {files}")
        result = run(TREE + path[0], "--version", env={"PATH": "/usr/bin:/bin"})
        expect(result.returncode == 0 and result.stdout.startswith(name), f"{name}: {result}")


@test("B132: a program is compiled, and finds the library, by pkg-config alone")
def library():
    files = install()
    folder = os.path.dirname(next(file for file in files if file.endswith("/ndk.pc")))
    guide = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../doc/ndk.md")
    with open(guide, encoding="utf-8") as file:
        source = re.search(r"^```c\n(.*?^int main.*?)^```", file.read(), re.S | re.M).group(1)
    rig.write_file("guide.c", source)
    words = run("pkg-config", "--cflags", "--libs", "ndk",
                env={**os.environ, "PKG_CONFIG_LIBDIR": TREE + folder,
                     "PKG_CONFIG_SYSROOT_DIR": TREE})
    expect(words.returncode == 0, f"pkg-config: {words.stderr}")
    result = run("cc", "-D_GNU_SOURCE", f"{rig.WORK}/guide.c", "-o", f"{rig.WORK}/guide",
                 *words.stdout.split())
    expect(result.returncode == 0, f"cc: {result.stderr}")
    where = os.path.dirname(next(file for file in files if file.endswith("/libndk.so")))
    result = run("ldd", f"{rig.WORK}/guide", env={**os.environ, "LD_LIBRARY_PATH": TREE + where})
    expect(f"libndk.so.0 => {TREE}{where}/" in result.stdout, f"ldd: {result.stdout}")


@test("B132: nothing that is installed has the name of something that others install")
def names():
    system = set()
    for place in ("/usr/bin", "/usr/sbin", "/bin", "/sbin"):
        system.update(os.listdir(place))
    for file in install():
        name = os.path.basename(file)
        if "/bin/" in file:
            expect(name not in system, f"{file} is in the system's path as well")
        if "/include/" in file:
            expect(not os.path.exists(f"/usr/include/{file.split('/include/')[1]}"), file)
        if "/lib" in file and ".so" in name:
            expect(not re.match(r"lib(ibverbs|rdmacm|rte_.*)\.so", name), file)


if __name__ == "__main__":
    rig.main()
