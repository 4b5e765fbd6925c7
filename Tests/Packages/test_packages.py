"""`bin/package`: the same bytes twice, no errors of lintian, complete contents, and a wheel that works."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "Tests/Integration"))

from support.harness import binary, temporary_folder, web  # noqa: E402

MOST_BYTES = 40_000_000
"""Maximum size of each program."""
FILES = {
    "usr/bin/earshot", "etc/earshot/config.toml", "usr/share/man/man1/earshot-get.1.gz",
    "usr/share/man/man5/earshot.toml.5.gz", "usr/share/man/man7/earshot-protocol.7.gz",
    "usr/share/bash-completion/completions/earshot", "usr/share/zsh/vendor-completions/_earshot",
    "usr/share/fish/vendor_completions.d/earshot.fish", "usr/lib/systemd/user/earshot.service",
    "usr/bin/earshot-web", "usr/share/man/man1/earshot-web.1.gz", "usr/share/bash-completion/completions/earshot-web",
    "usr/share/zsh/vendor-completions/_earshot-web", "usr/share/fish/vendor_completions.d/earshot-web.fish",
    "usr/lib/systemd/user/earshot-web.service", "usr/lib/systemd/system/earshot-web@.service",
    "usr/lib/systemd/user/earshot.socket", "usr/lib/systemd/system/earshot@.service",
    "usr/lib/systemd/system/earshot-shared.service", "usr/lib/sysusers.d/earshot.conf",
    "usr/share/doc/earshot/copyright", "usr/share/doc/earshot/changelog.gz",
} | {f"usr/share/doc/earshot/notices/{path.name}" for path in (ROOT / "packaging/notices").iterdir()}


def run(*arguments, **environment):
    done = subprocess.run([str(one) for one in arguments], env={**os.environ, **environment}, text=True, capture_output=True,
                          timeout=600, check=False)
    if done.returncode:
        raise AssertionError(f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


class PackageTests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = temporary_folder()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        for number in "12":
            run(ROOT / "bin/package", cls.folder / number, EARSHOT_BINARY=binary(), EARSHOT_WEB=web())
        cls.files = sorted(path.name for path in (cls.folder / "1").iterdir())
        cls.deb, = (cls.folder / "1").glob("earshot_*.deb")
        cls.tree = cls.folder / "tree"
        run("dpkg-deb", "--extract", cls.deb, cls.tree)

    def test_two_runs_write_the_same_bytes(self):
        self.assertEqual(len(self.files), 3, self.files)
        for name in self.files:
            first, second = ((self.folder / number / name).read_bytes() for number in "12")
            self.assertTrue(first == second, name)

    def test_lintian_finds_no_error(self):
        debs = [self.folder / "1" / name for name in self.files if name.endswith(".deb")]
        run("lintian", "--allow-root", "--fail-on", "error", *debs)

    def test_it_contains_program_pages_completions_units_and_configuration(self):
        found = {str(path.relative_to(self.tree)) for path in self.tree.rglob("*") if path.is_file()}
        self.assertEqual(FILES - found, set())
        for program in ("earshot", "earshot-web"):
            self.assertLess((self.tree / "usr/bin" / program).stat().st_size, MOST_BYTES)
        unit = (self.tree / "usr/lib/systemd/user/earshot.service").read_text()
        self.assertIn("ExecStart=/usr/bin/earshot serve\n", unit)

    def test_libraries_that_are_loaded_at_run_time_are_dependencies(self):
        fields = {name: {part.split()[0].removesuffix("t64") for part in run("dpkg-deb", "--field", self.deb, name).split(",")}
                  for name in ("Depends", "Recommends", "Suggests")}
        self.assertLessEqual({"libbrotli1", "libcurl4", "libzstd1", "zlib1g", "libc-ares2", "procps"}, fields["Depends"])
        self.assertEqual(fields["Recommends"], {"ca-certificates", "libidn2-0", "libpsl5", "libzmq5"})
        self.assertEqual(fields["Suggests"], {"bash-completion", "systemd"})

    def test_debuggers_find_the_symbols_by_build_id(self):
        symbols, = (self.folder / "1").glob("earshot-dbgsym_*.deb")
        contents = run("dpkg-deb", "--contents", symbols)
        for program in ("earshot", "earshot-web"):
            # `--notes` ends with 1 in binutils 2.40, which do not know the type of .note.dlopen.
            dump = run("readelf", "--hex-dump=.note.gnu.build-id", self.tree / "usr/bin" / program)
            number = "".join(re.findall(r"^  0x\w+ ((?:[0-9a-f]{8} )+)", dump, re.M)).replace(" ", "")[32:]
            self.assertRegex(number, "^[0-9a-f]{40}$")
            self.assertIn(f"usr/lib/debug/.build-id/{number[:2]}/{number[2:]}.debug", contents)

    def test_nothing_starts_by_itself(self):
        """Units are installed but not enabled: no script enables or starts one, and no link of a target names one."""
        for script in ("postinst", "prerm", "postrm"):
            self.assertNotRegex(run("dpkg-deb", "--info", self.deb, script), r"systemctl (\S+ )*(enable|start|preset)")
        links = [path for path in self.tree.rglob("*.wants/*")]
        self.assertEqual(links, [])

    def test_the_wheel_has_the_library_and_its_types(self):
        wheel, = (self.folder / "1").glob("*.whl")
        names = run(sys.executable, "-m", "zipfile", "--list", wheel)
        self.assertIn("earshot_bus/py.typed", names)
        self.assertTrue(wheel.name.startswith("earshot_bus-"), wheel.name)
        code = "import earshot_bus, earshot_bus.blocking; print(earshot_bus.__file__)"
        self.assertIn(".whl", run(sys.executable, "-c", code, PYTHONPATH=str(wheel)))
        [metadata] = [name.split()[0] for name in names.splitlines() if "METADATA" in name]
        with zipfile.ZipFile(wheel) as files:
            fields = files.read(metadata).decode().splitlines()
        self.assertIn("Provides-Extra: tcp", fields)
        self.assertTrue(any(line.startswith("Requires-Dist: pyzmq") and "extra" in line for line in fields), fields)


if __name__ == "__main__":
    unittest.main()
