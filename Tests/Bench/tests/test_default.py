"""The suite of default settings: its commands name the list and the folder, and a list is fetched twice as its title says."""

import os
import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from bench.data import Files, Pictures  # noqa: E402
from bench.frame import Failed  # noqa: E402
from bench.servers import Nginx  # noqa: E402
from bench.suites.default import Work  # noqa: E402

FETCHES_ALWAYS = "#!/bin/sh\nexec xargs -n 1 curl -s -O <$3\n"
"""Program that fetches the list of `earshot get -i LIST`, without a cache."""


class DefaultTests(unittest.TestCase):
    def test_pictures_have_20_to_60_kib(self):
        pictures = Pictures(50)
        sizes = [len(pictures.expected(name)) for name in pictures.names]
        self.assertTrue(all(20_480 <= size < 61_440 for size in sizes), sizes)
        self.assertGreater(len(set(sizes)), 40)

    def test_each_program_fetches_all_files_of_the_list_into_the_folder(self):
        with Nginx() as origin:
            rows = [row for row in Work(Pictures(3), origin).peers() if shutil.which(row.command.split()[0])]
            self.assertTrue(rows)
            for row in rows:
                self.assertGreater(row.run(0).value, 0, row.name)

    def test_a_list_that_is_not_fetched_again_as_expected_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder, Nginx(counted=True) as origin:
            program = pathlib.Path(folder, "earshot")
            program.write_text(FETCHES_ALWAYS)
            program.chmod(0o700)
            with mock.patch.dict(os.environ, EARSHOT_BINARY=str(program)):
                work = Work(Files(3, 1_024), origin)
                private = work.ours(origin_requests=3, revalidated=0)[0].run(0)
                self.assertEqual((private.extra["origin_requests"], private.extra["revalidated"]), (3, 0))
                for wrong in ({"origin_requests": 0, "revalidated": 0}, {"origin_requests": 3, "revalidated": 3}):
                    with self.assertRaisesRegex(Failed, "the second time caused"):
                        work.ours(**wrong)[0].run(0)


if __name__ == "__main__":
    unittest.main()
