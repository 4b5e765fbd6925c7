"""Start, reload and faults of the gateway."""

import json
import os
import pathlib
import shutil
import signal
import socket

from support.harness import Bus, TestCase
from support.network import NetworkBus, free_port
from support.processes import eventually


class GatewayStartTests(TestCase):
    def serve(self, *arguments, bus=None):
        bus = bus or self.idle_bus()
        return bus.run("serve", "--runtime", bus.runtime, "--spool", bus.spool, "--workers", "1", *arguments)

    def idle_bus(self):
        """Returns a bus that does not run."""
        bus = Bus(workers=1)
        self.addCleanup(shutil.rmtree, bus.folder, ignore_errors=True)
        return bus

    def bus_with_keys(self):
        bus = self.idle_bus()
        self.assertEqual(bus.run("key", "show").status, 0)
        return bus

    def test_an_address_in_use_ends_serve_with_73(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            program = self.serve("--listen", f"tcp://127.0.0.1:{taken.getsockname()[1]}", bus=self.bus_with_keys())
        self.assertEqual(program.status, 73, program.describe())
        self.assertIn("Address already in use", program.stderr)

    def test_an_address_of_another_machine_ends_serve_with_73(self):
        program = self.serve("--listen", "tcp://192.0.2.1:5765", bus=self.bus_with_keys())
        self.assertEqual(program.status, 73, program.describe())

    def test_an_invalid_address_ends_serve_with_78(self):
        for text in ("tcp://localhost:1", "ipc:///bus", "tcp://1.2.3.4:99999", "tcp://::1:5765"):
            program = self.serve("--listen", text)
            self.assertEqual(program.status, 78, program.describe())

    def test_missing_keys_end_serve_with_78(self):
        program = self.serve("--listen", f"tcp://127.0.0.1:{free_port()}")
        self.assertEqual(program.status, 78, program.describe())
        self.assertIn("earshot key show", program.stderr)

    def test_keys_that_others_can_read_end_serve_with_78(self):
        bus = self.bus_with_keys()
        os.chmod(bus.folder / "config/earshot/keys.toml", 0o640)
        program = self.serve("--listen", f"tcp://127.0.0.1:{free_port()}", bus=bus)
        self.assertEqual(program.status, 78, program.describe())
        self.assertIn("chmod 600", program.stderr)

    def test_without_listen_there_is_no_gateway(self):
        with Bus(workers=1) as bus:
            self.assertEqual(bus._pids("gateway"), [])

    def test_the_secrets_are_in_no_argument_and_no_environment(self):
        with NetworkBus(workers=1) as bus:
            client = bus.remote()
            client.query("ping")
            secret = (bus.folder / "config/earshot/keys.toml").read_text().split('secret-key = "')[1].split('"')[0]
            for pid in (bus.supervisor, bus.broker, bus.gateway):
                process = pathlib.Path(f"/proc/{pid}")
                text = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
                self.assertNotIn(secret.encode(), text)
                self.assertNotIn(b"proof", text)

    def test_the_gateway_has_no_file_of_the_bus_open(self):
        with NetworkBus(workers=1) as bus:
            bus.remote().query("ping")
            folder = pathlib.Path(f"/proc/{bus.gateway}/fd")
            targets = [os.readlink(folder / name) for name in os.listdir(folder)]
            self.assertFalse([target for target in targets if target.startswith(str(bus.folder))], targets)

    def test_addresses_change_with_a_reload(self):
        first, second = free_port(), free_port()
        bus = self.bus_with_keys()
        config = bus.folder / "config/earshot/config.toml"
        config.write_text(f'listen = ["tcp://127.0.0.1:{first}"]\n')
        with bus:
            socket.create_connection(("127.0.0.1", first), timeout=60).close()
            config.write_text(f'listen = ["tcp://127.0.0.1:{second}"]\n')
            bus.program.signal(signal.SIGHUP)
            bus.program.await_line(f"listening address=tcp://127.0.0.1:{second}")
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", first), timeout=60)
            config.write_text("listen = []\n")
            bus.program.signal(signal.SIGHUP)
            eventually(lambda: not bus._pids("gateway"), "the gateway has ended")

    def test_a_crash_loop_of_the_gateway_is_in_the_status(self):
        with NetworkBus(workers=1, crashes=True) as bus:
            os.chmod(bus.folder / "config/earshot/keys.toml", 0o644)
            os.kill(bus.gateway, signal.SIGKILL)
            bus.program.await_line("the gateway (")
            eventually(lambda: [row["role"] for row in json.loads(bus.await_status("--json")).get("failing", [])] == ["gateway"],
                       "the status tells it", 60)
            self.assertFalse(json.loads(bus.await_status("--json"))["ready"])

    def test_the_gateway_is_restricted(self):
        with NetworkBus(workers=1) as bus:
            status = pathlib.Path(f"/proc/{bus.gateway}/status").read_text()
            fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            self.assertEqual((fields["NoNewPrivs"], fields["Seccomp"]), ("1", "2"))
            self.assertNotIn("not completely restricted", bus.program.stderr)
