"""`bin/install PREFIX` installs the program with pages, completions, units and an example of a configuration file."""

import os
import re
import shutil
import subprocess
import unittest

from support.harness import ROOT, binary, temporary_folder, web


class InstallTests(unittest.TestCase):
    def setUp(self):
        self.folder = temporary_folder()
        self.addCleanup(shutil.rmtree, self.folder)

    def run_script(self, *arguments, **environment):
        return subprocess.run([ROOT / "bin/install", *arguments], env={**os.environ, "EARSHOT_BINARY": binary(), "EARSHOT_WEB": web(), **environment},
                              text=True, capture_output=True, timeout=120, check=False)

    def test_everything_is_below_the_prefix(self):
        prefix = self.folder / "usr"
        done = self.run_script(prefix)
        self.assertEqual(done.returncode, 0, done.stderr)
        for path in ("bin/earshot", "share/man/man1/earshot-get.1", "share/bash-completion/completions/earshot",
                     "share/zsh/site-functions/_earshot", "share/fish/vendor_completions.d/earshot.fish",
                     "lib/systemd/user/earshot.socket", "bin/earshot-web", "share/man/man1/earshot-web.1",
                     "share/bash-completion/completions/earshot-web", "share/zsh/site-functions/_earshot-web",
                     "share/fish/vendor_completions.d/earshot-web.fish"):
            self.assertTrue((prefix / path).is_file(), path)
        for unit in ("user/earshot.service", "system/earshot@.service"):
            self.assertIn(f"ExecStart={prefix}/bin/earshot serve\n", (prefix / "lib/systemd" / unit).read_text())
        shared = (prefix / "lib/systemd/system/earshot-shared.service").read_text()
        self.assertIn(f"ExecStart={prefix}/bin/earshot serve --config /etc/earshot/shared.toml\n", shared)
        for unit in ("user/earshot-web.service", "system/earshot-web@.service"):
            self.assertIn(f"ExecStart={prefix}/bin/earshot-web $OPTIONS\n", (prefix / "lib/systemd" / unit).read_text())
        self.check_configuration(prefix / "share/doc/earshot/config.toml")

    def check_configuration(self, path):
        """The file has each setting as a comment, with its default."""
        text = path.read_text()
        (self.folder / "none").mkdir()
        environment = {"HOME": str(self.folder / "none"), "PATH": os.environ["PATH"]}

        def config(*arguments):
            done = subprocess.run([binary(), "config", *arguments], env=environment, text=True, capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            return {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}

        defaults = config()
        self.assertEqual(config("--config", path), defaults, "it changes nothing")
        path.write_text(re.sub(r'^#(?=[a-z"\[])', "", text, flags=re.MULTILINE))
        changed = config("--config", path)
        self.assertEqual({name for name in defaults if changed[name][1] != str(path)}, set(), "it has each setting")
        self.assertEqual({name for name in defaults if changed[name][0] != defaults[name][0]} - {"workers"}, set())
        for key in ("limit", "spacing", "http2", "rate"):
            self.assertRegex(text, f"(?m)^#{key} = ", "it has each key of an origin's rule")

    def test_a_missing_program_is_named(self):
        done = self.run_script(self.folder, EARSHOT_WEB=str(self.folder / "none"))
        self.assertEqual(done.returncode, 66)
        self.assertIn("set EARSHOT_WEB", done.stderr)

    def test_a_relative_prefix_is_refused(self):
        self.assertEqual(self.run_script("usr").returncode, 64)
        self.assertEqual(self.run_script().returncode, 64)
