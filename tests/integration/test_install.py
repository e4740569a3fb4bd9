# SPDX-License-Identifier: BSD-3-Clause
"""What `meson install` puts down: programs that find their library, a library that others find."""
import os
import re
import shutil
import subprocess

import rig
from rig import expect, expect_equal, test

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = f"{rig.WORK}/tree"
PROGRAMS = ["orield", "orielctl", "oriel-target", "oriel-perf"]


def run(*words, **options):
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120,
                          **options)


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


def flags(files):
    """What pkg-config says of the installed library, and where that lies."""
    folder = os.path.dirname(next(file for file in files if file.endswith("/ndk.pc")))
    words = run("pkg-config", "--cflags", "--libs", "ndk",
                env={**os.environ, "PKG_CONFIG_LIBDIR": TREE + folder,
                     "PKG_CONFIG_SYSROOT_DIR": TREE})
    expect(words.returncode == 0, f"pkg-config: {words.stderr}")
    where = os.path.dirname(next(file for file in files if file.endswith("/libndk.so")))
    return words.stdout.split(), TREE + where


def expect_program(compiler, source, words, where):
    """It is compiled and linked, and is loaded with the installed library."""
    program = f"{rig.WORK}/program"
    result = run(*compiler, source, "-o", program, *words)
    expect(result.returncode == 0, f"{compiler}: {result.stderr}")
    result = run("ldd", program, env={**os.environ, "LD_LIBRARY_PATH": where})
    expect(f"libndk.so.0 => {where}/" in result.stdout, f"ldd: {result.stdout}")


@test("B132: a program is compiled, and finds the library, by pkg-config alone")
def library():
    words, where = flags(install())
    guide = os.path.join(HERE, "../../doc/ndk.md")
    with open(guide, encoding="utf-8") as file:
        source = re.search(r"^```c\n(.*?^int main.*?)^```", file.read(), re.S | re.M).group(1)
    rig.write_file("guide.c", source)
    expect_program(["cc", "-D_GNU_SOURCE"], f"{rig.WORK}/guide.c", words, where)


@test("programs of strict C11 and C++17 are built with pkg-config alone, without a warning")
def languages():
    words, where = flags(install())
    strict = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
    program = os.path.join(HERE, "../unit/ndk/program.c")
    rig.write_file("main.c", "int main(void)\n{\n\treturn 0;\n}\n")
    for compiler in (["cc", "-std=c11"], ["c++", "-std=c++17", "-x", "c++"]):
        if shutil.which(compiler[0]):
            expect_program(compiler + strict + [f"{rig.WORK}/main.c"], program, words, where)


@test("libndk exports our own functions and nothing else, and needs libc only")
def symbols():
    _, where = flags(install())
    dynamic = run("readelf", "--dynamic", "--wide", f"{where}/libndk.so").stdout
    expect_equal(re.findall(r"\(SONAME\).*\[(.*)\]", dynamic), ["libndk.so.0"], "SONAME")
    # The loader is libc's, and comes in with thread-local storage; a sanitizer's is the build's.
    needed = [name for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
              if not re.match(r"ld-linux|lib[a-z]+san\.", name)]
    expect_equal(needed, ["libc.so.6"], "NEEDED")
    table = run("readelf", "--dyn-syms", "--wide", f"{where}/libndk.so").stdout
    names = re.findall(r"^ +\d+: \w+ +\d+ (?:FUNC|OBJECT) +GLOBAL +DEFAULT +\d+ (\S+)", table, re.M)
    expect(len(names) > 20, f"{len(names)} symbols")
    strange = [name for name in names if not re.match(r"(Ndk|Oriel)\w+@@ORIEL_0\.1$", name) and
               not name.startswith("ORIEL_0.1")]
    expect_equal(strange, [], "symbols that are not ours")


@test("libndk-inprocess is found by the installed libndk, and shows one function to it")
def in_process():
    files = install()
    _, where = flags(files)
    program = TREE + next(file for file in files if file.endswith("/bin/oriel-perf"))
    result = run(program, "--in-process", "/absent.conf", "--export", "10.0.0.1:7471",
                 env={"PATH": "/usr/bin:/bin"})
    expect("/absent.conf: No such file or directory" in result.stderr, f"{result}")
    dynamic = run("readelf", "--dynamic", "--wide", f"{where}/libndk-inprocess.so").stdout
    expect_equal(re.findall(r"\(SONAME\).*\[(.*)\]", dynamic), ["libndk-inprocess.so.0"], "SONAME")
    table = run("readelf", "--dyn-syms", "--wide", f"{where}/libndk-inprocess.so").stdout
    names = re.findall(r"^ +\d+: \w+ +\d+ (?:FUNC|OBJECT) +GLOBAL +DEFAULT +\d+ (\S+)", table, re.M)
    expect_equal([name for name in names if not name.startswith("ORIEL_0.1")],
                 ["oriel_plane_open@@ORIEL_0.1"], "symbols")
    words = run("pkg-config", "--libs", "ndk-inprocess",
                env={**os.environ, "PKG_CONFIG_SYSROOT_DIR": TREE, "PKG_CONFIG_LIBDIR":
                     TREE + os.path.dirname(next(f for f in files if f.endswith("/ndk.pc")))})
    rig.write_file("main.c", "int main(void)\n{\n\treturn 0;\n}\n")
    program = f"{rig.WORK}/program"
    result = run("cc", f"{rig.WORK}/main.c", "-o", program, *words.stdout.split())
    expect(result.returncode == 0, f"cc: {result.stderr}")
    expect("libndk-inprocess.so.0" in run("readelf", "--dynamic", "--wide", program).stdout,
           "a program says that it wants the library")


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
