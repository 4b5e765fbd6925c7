"""Unknown arguments are named in the error, and help belongs to the requested command."""

from support.harness import Commands, TestCase, temporary_folder

#: Subcommands with complete arguments: each that reads its arguments in another way, and a nested one.
COMPLETE = {"get": ["http://127.0.0.1:9/"], "serve": [], "status": [], "cache stat": [], "work": ["--scheme", "a", "--", "true"],
            "broker": [], "worker": []}


class ArgumentTests(TestCase):
    def setUp(self):
        folder = temporary_folder()
        self.addCleanup(folder.rmdir)
        self.commands = Commands(folder / "run", folder)

    def refused(self, *arguments):
        """Returns the error for wrong arguments."""
        program = self.commands.run(*arguments)
        self.assertEqual((program.status, program.stdout), (64, b""), program.describe())
        return program.stderr

    def test_an_unknown_option_is_named_whatever_else_is_wrong(self):
        for name, complete in COMPLETE.items():
            for arguments in (["--no-such", "1k", *complete], *([["--no-such=1k"], ["--no-such"]] if name == "get" else [])):
                with self.subTest(name, arguments=arguments):
                    output = self.refused(*name.split(), *arguments)
                    self.assertIn("Unknown option '--no-such'", output)
                    self.assertIn(f"earshot {name} --help", output)

    def test_an_unknown_letter_is_named(self):
        self.assertIn("Unknown option '-Z'", self.refused("get", "-Z", "http://127.0.0.1:9/", "http://127.0.0.1:9/"))
        self.assertIn("Unknown option '-Z'", self.refused("get", "-vZ", "http://127.0.0.1:9/"))

    def test_the_nearest_name_is_suggested(self):
        self.assertIn("Did you mean '--timeout'?", self.refused("get", "--timeuot", "1", "http://127.0.0.1:9/"))
        self.assertIn("Did you mean 'status'?", self.refused("stats"))
        self.assertNotIn("Did you mean", self.refused("watch", "--zzz", "h"))

    def test_values_and_words_behind_two_dashes_are_no_options(self):
        output = self.refused("get", "--timeout", "soon", "--", "--no-such")
        self.assertIn("soon", output)
        self.assertIn("--timeout", self.refused("get", "--timeout", "--json", "http://127.0.0.1:9/"))
        self.assertIn("several URLs", self.refused("get", "http://127.0.0.1:9/", "--", "--no-such"))

    def test_an_unknown_subcommand_has_no_help(self):
        for arguments in (["nosuch", "--help"], ["help", "nosuch"], ["cache", "nosuch"]):
            with self.subTest(arguments=arguments):
                self.assertIn("Unknown command 'nosuch'", self.refused(*arguments))

    def test_help_is_that_of_the_command(self):
        for name in COMPLETE:
            plain = [["help", *name.split()], [*name.split(), "--help"]] if name in ("get", "cache stat") else []
            for arguments in (*plain, [*name.split(), "-h", "--nonsense"]):
                with self.subTest(arguments=arguments):
                    program = self.commands.run(*arguments)
                    self.assertEqual((program.status, program.stderr), (0, ""), program.describe())
                    self.assertIn(f"USAGE: earshot {name}", program.stdout.decode())
