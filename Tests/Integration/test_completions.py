"""Each shell completes subcommands, options, settings, files and the handlers of the running broker."""

import os
import signal
import time

from support.harness import Bus, Commands, TestCase, binary, temporary_folder, web
from support.processes import Program, eventually
from support.terminal import PROMPT, Terminal
from support.tools import tool

HOSTILE = "night$(touch${IFS}executed)"
"""Handler whose name a shell would execute."""


class Shell:
    """Shell to which a person types. `script` is that of `earshot --generate-completion-script`."""

    def __init__(self, folder, environment):
        self.folder, self.environment, self.start = folder, environment, []

    def lines(self, *typed):
        """Returns each command line after TAB. It types an unchanged one again: the shell waits only briefly for the broker."""
        with Terminal(self.start, self.environment, self.folder) as terminal:
            for text in typed:
                line, turns = text, 10
                while line == text and turns > 0:
                    terminal.await_text(PROMPT)
                    # Ctrl-A goes to the start of the line. The output begins in a line of its own.
                    terminal.type(f"{text}\t\x01echo = \r")
                    terminal.await_text("\n= ")
                    line, turns = terminal.await_text("\n").strip(), turns - 1
                yield line


class Bash(Shell):
    def __init__(self, folder, environment, script):
        super().__init__(folder, environment)
        (folder / "bashrc").write_text(f"PS1='{PROMPT}'\nsource {script}\n")
        self.start = [tool("bash", "bash"), "--rcfile", folder / "bashrc", "-i"]


class Zsh(Shell):
    def __init__(self, folder, environment, script):
        super().__init__(folder, {**environment, "ZDOTDIR": str(folder)})
        (folder / "functions").mkdir()
        command = script.read_text().split("\n", 1)[0].removeprefix("#compdef ")
        script.rename(folder / "functions" / f"_{command}")
        (folder / ".zshrc").write_text(f"PS1='{PROMPT}'\nbindkey -e\nfpath=({folder}/functions $fpath)\n"
                                       "autoload -Uz compinit\ncompinit -u -D\n")
        self.start = [tool("zsh", "zsh"), "-d", "-i"]


class Fish(Shell):
    def __init__(self, folder, environment, script):
        super().__init__(folder, {**environment, "HOME": str(folder)})
        setup = f"function fish_prompt; printf '{PROMPT}'; end; function fish_greeting; end; source {script}"
        self.start = [tool("fish", "fish"), "--no-config", "-i", "-C", setup]


class CompletionTests(TestCase):
    def setUp(self):
        self.bus = self.enterContext(Bus())
        client = self.bus.client()
        client.send("SUBSCRIBE night-backup")
        client.send(f"SUBSCRIBE {HOSTILE}")
        client.send("SUBSCRIBE gallery/7")
        client.query("ping")
        self.environment = dict(self.bus.environment, PATH=f"{os.path.dirname(binary())}:{self.bus.environment['PATH']}")

    def completes(self, shell, name):
        folder = self.bus.folder / name
        folder.mkdir()
        (folder / "list.txt").touch()
        (folder / "target").mkdir()
        program = self.bus.run("--generate-completion-script", name)
        self.assertEqual(program.status, 0, program.describe())
        script = folder / "script"
        script.write_bytes(program.stdout)
        shell = shell(folder, self.environment, script)
        expected = dict((
                ("earshot dro", "earshot drop"),
                ("earshot get --timeo", "earshot get --timeout"),
                ("earshot get --redirect fol", "earshot get --redirect follow"),
                ("earshot set address-p", "earshot set address-policy"),
                ("earshot get -i lis", "earshot get -i list.txt"),
                ("earshot get -d tar", "earshot get -d target/"),
                ("earshot drop nig", "earshot drop night-backup"),
                ("earshot watch gallery/7", "earshot watch gallery/7"),
                ("earshot submit --handler nig", "earshot submit --handler night-backup")))
        for typed, line in zip(expected, shell.lines(*expected)):
            with self.subTest(name, typed=typed):
                self.assertEqual(line.rstrip("/"), expected[typed].rstrip("/"))
        self.assertFalse((folder / "executed").exists())

    def test_bash(self):
        self.completes(Bash, "bash")

    def test_zsh(self):
        self.completes(Zsh, "zsh")

    def test_fish(self):
        self.completes(Fish, "fish")

    def test_earshot_web_in_each_shell(self):
        for shell, name in ((Bash, "bash"), (Zsh, "zsh"), (Fish, "fish")):
            folder = self.bus.folder / f"web-{name}"
            folder.mkdir()
            (folder / "token.txt").touch()
            program = Program([web(), "--generate-completion-script", name], self.environment, folder)
            self.assertEqual(program.wait(), 0, program.describe())
            script = folder / "script"
            script.write_bytes(program.stdout)
            environment = dict(self.environment, PATH=f"{os.path.dirname(web())}:{self.environment['PATH']}")
            with self.subTest(name):
                lines = shell(folder, environment, script).lines("earshot-web --li", "earshot-web --token-file tok")
                self.assertEqual(list(lines), ["earshot-web --listen", "earshot-web --token-file token.txt"])

    def complete(self, commands):
        """Returns the handlers offered behind `earshot drop`, and the seconds."""
        began = time.monotonic()
        program = commands.run("---completion", "drop", "--", "positional@0", "2", "0", "earshot", "drop", "")
        self.assertEqual((program.status, program.stderr), (0, ""), program.describe())
        return program.stdout.decode().split(), time.monotonic() - began

    def test_subtrees_are_offered_with_their_slash(self):
        offered = eventually(lambda: self.complete(self.bus)[0], "the broker answers in time")
        self.assertEqual(offered, ["gallery/", "gallery/7", "night-backup"])

    def test_without_a_broker_nothing_is_offered(self):
        folder = temporary_folder()
        self.addCleanup(folder.rmdir)
        self.assertEqual(self.complete(Commands(folder / "run", folder))[0], [])

    def test_a_broker_that_does_not_answer_delays_the_shell_briefly(self):
        os.kill(self.bus.broker, signal.SIGSTOP)
        self.addCleanup(os.kill, self.bus.broker, signal.SIGCONT)
        handlers, seconds = self.complete(self.bus)
        self.assertEqual(handlers, [])
        # Other commands wait 20 seconds.
        self.assertLess(seconds, 20)
