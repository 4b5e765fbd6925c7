"""Programs behind the HTTP door: apt, pip and Chromium."""

import email.utils
import hashlib
import io
import os
import pathlib
import pwd
import shutil
import subprocess
import tempfile
import threading
import unittest
import zipfile

import checkout  # noqa: F401
from browser import Browser
from door import HOST, Door, Site, needs
from support.harness import TestCase
from support.origin import body
from support.processes import eventually

WHEEL = "eardoor-1.0-py3-none-any.whl"
PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20"><rect width="20" height="20"/></svg>'


def wheel():
    """Returns the bytes of a package."""
    files = {"eardoor.py": b"", "eardoor.bin": body(300_000), "eardoor-1.0.dist-info/RECORD": b"",
             "eardoor-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: eardoor\nVersion: 1.0\n",
             "eardoor-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


class ProgramTests(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.door = cls.enterClassContext(Door(origin_limit=100))

    def setUp(self):
        self.site = self.enterContext(Site())
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def need(self, *programs):
        for program in programs:
            if reason := needs(program):
                self.skipTest(reason)

    def pip(self, *arguments, **options):
        return subprocess.Popen(["pip3", "--isolated", "--disable-pip-version-check", "download", "--quiet", "--no-cache-dir",
                                 "--no-deps", "--dest", self.folder, *arguments], stdout=subprocess.DEVNULL, **options)

    def test_curl_wget_pip_and_Chromium_at_once_are_one_request(self):
        self.need("curl", "wget")
        has_pip = not needs("pip3")
        content = wheel()
        url = self.site.publish(f"/{WHEEL}", "text/plain", content, X_Content_Type_Options="nosniff")
        self.site.held.add(f"/{WHEEL}")
        programs = [subprocess.Popen([*words, url], env=self.door.variables()) for words in (
            ["curl", "-sSf", "-o", self.folder / "curl"], ["wget", "-q", "-O", self.folder / "wget"])]
        if has_pip:
            programs.append(self.pip(url, env=self.door.variables()))
        with Browser(self.door.proxy) as browser, self.door.client() as client:
            navigation = threading.Thread(target=browser.open, args=(url,))
            navigation.start()
            eventually(lambda: client.query("status")["requests"]["pending"] == len(programs) + 1, "all have asked")
            self.site.open_gate()
            navigation.join(60)
            eventually(lambda: browser.value("document.readyState") == "complete", "the page is complete")
            self.assertEqual(browser.value("location.href"), url)
        for program in programs:
            self.assertEqual(program.wait(60), 0, program.args)
        for name in ["curl", "wget"] + [WHEEL] * has_pip:
            self.assertTrue((self.folder / name).read_bytes() == content, name)
        self.assertEqual(self.site.requested.count(f"/{WHEEL}"), 1)

    def test_pip_downloads_by_the_prefix_and_by_the_proxy_with_hashes_right(self):
        self.need("pip3")
        content = wheel()
        digest = hashlib.sha256(content).hexdigest()
        self.site.publish(f"/files/{WHEEL}", "application/octet-stream", content)
        # pip writes the colons of the prefix in relative links as %3A.
        self.site.publish("/simple/eardoor/", "text/html", f'<a href="../../files/{WHEEL}#sha256={digest}">{WHEEL}</a>')
        requirements = self.folder / "requirements"
        requirements.write_text(f"eardoor==1.0 --hash=sha256:{digest}\n")
        for options, variables in [(["--index-url", f"{self.door.proxy}{self.site.url}/simple/"], dict(os.environ)),
                                   (["--index-url", f"{self.site.url}/simple/", "--trusted-host", HOST], self.door.variables())]:
            with self.pip("--require-hashes", "-r", requirements, *options, env=variables, stderr=subprocess.PIPE) as program:
                self.assertEqual((program.communicate(timeout=60)[1], program.returncode), (b"", 0))
            self.assertTrue((self.folder / WHEEL).read_bytes() == content)
            (self.folder / WHEEL).unlink()
        self.assertEqual(self.door.status()["http"]["refused"], 0)

    def test_a_page_of_pictures_is_shown_and_a_second_browser_causes_no_request(self):
        names = [f"/{number}.svg" for number in range(40)]
        for name in names:
            self.site.publish(name, "image/svg+xml", PICTURE, Cache_Control="max-age=600")
        url = self.site.publish("/gallery", "text/html", "".join(f'<img src="{name}">' for name in names),
                                Cache_Control="max-age=600")
        for _ in range(2):
            with Browser(self.door.proxy) as browser:
                browser.open(url)
                eventually(lambda: browser.value("[...document.images].filter(i => i.complete && i.naturalWidth).length") == 40,
                           "all pictures are shown")
        # The browser requests its icon when it likes.
        requested = [path for path in self.site.requested if path != "/favicon.ico"]
        self.assertEqual(sorted(requested), sorted(["/gallery", *names]))

    # apt.

    def test_apt_downloads_as_its_own_user_and_a_killed_one_ends_the_transfer(self):
        self.need("apt-get", "dpkg-deb")
        if os.geteuid() != 0:
            self.skipTest("apt changes to its user only as root")
        user = pwd.getpwnam("_apt")
        name = self.publish_repository("1")
        for path in (self.folder, *(self.folder / part for part in ("etc", "lists/partial", "archives/partial"))):
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o755)
        for part in ("lists/partial", "archives/partial"):
            os.chown(self.folder / part, user.pw_uid, 0)
        (self.folder / "etc/sources.list").write_text(f"deb [trusted=yes] {self.site.url} s main\n")
        (self.folder / "status").write_text("")
        with Door(arguments=["--http-users", "_apt"]) as door:
            (self.folder / "apt.conf").write_text(f"""
                Dir::Etc "{self.folder}/etc"; Dir::Etc::SourceParts "/dev/null"; Dir::State "{self.folder}"; Dir::Cache "{self.folder}";
                Dir::State::status "{self.folder}/status"; APT::Sandbox::User "_apt"; Acquire::http::Proxy "{door.proxy}";
                Acquire::Languages "none"; Debug::NoLocking "true";""")
            self.apt("update").communicate(timeout=60)
            install = ["install", "--yes", "--download-only", "eardoor"]
            self.site.held.add(name)
            program = self.apt(*install)
            eventually(lambda: name in self.site.requested, "apt has asked for the package")
            self.assertIn(f"uid:{user.pw_uid}", door.run("list").stdout.decode())
            program.kill()
            program.communicate()
            eventually(lambda: self.site.aborted == [name], "the transfer has ended")
            self.site.open_gate()
            program = self.apt(*install)
            printed = program.communicate(timeout=60)[0]
            self.assertEqual(program.returncode, 0, printed)
            self.assertTrue(self.downloaded() == self.site.pages[name][1])
            # The old index is still fresh by its Last-Modified, but apt asks for a validated one.
            name = self.publish_repository("2")
            self.apt("update").communicate(timeout=60)
            self.apt(*install).communicate(timeout=60)
            self.assertTrue(self.downloaded() == self.site.pages[name][1])
            self.assertEqual(door.status()["http"]["refused"], 0)

    def downloaded(self):
        """Returns the bytes of the package that apt has downloaded, and removes it."""
        package, = (self.folder / "archives").glob("*.deb")
        content = package.read_bytes()
        package.unlink()
        return content

    def apt(self, *arguments):
        return subprocess.Popen(["apt-get", "--quiet", *arguments], env={**os.environ, "APT_CONFIG": str(self.folder / "apt.conf")},
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def publish_repository(self, version):
        """Publishes a repository with one package. Returns the package's path."""
        tree = self.folder / "tree"
        (tree / "DEBIAN").mkdir(parents=True)
        name = f"/eardoor_{version}.deb"
        control = f"Package: eardoor\nVersion: {version}\nArchitecture: all\nMaintainer: a <a@example.org>\nDescription: a test\n"
        (tree / "DEBIAN/control").write_text(control)
        (tree / "data").write_bytes(body(300_000, version))
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, self.folder / "eardoor.deb"], check=True,
                       stdout=subprocess.DEVNULL)
        shutil.rmtree(tree)
        package = (self.folder / "eardoor.deb").read_bytes()
        machine = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout.strip()
        index = f"{control}Filename: {name[1:]}\nSize: {len(package)}\nSHA256: {hashlib.sha256(package).hexdigest()}\n".encode()
        release = (f"Suite: s\nCodename: s\nComponents: main\nArchitectures: {machine}\nDate: {email.utils.formatdate()}\n"
                   f"SHA256:\n {hashlib.sha256(index).hexdigest()} {len(index)} main/binary-{machine}/Packages\n")
        for path, content in [("Release", release), (f"main/binary-{machine}/Packages", index)]:
            self.site.publish(f"/dists/s/{path}", "text/plain", content, Last_Modified="Mon, 01 Jan 2024 00:00:00 GMT")
        self.site.publish(name, "application/octet-stream", package)
        return name


if __name__ == "__main__":
    unittest.main()
