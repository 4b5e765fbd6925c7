"""The metrics and examples/monitoring under Prometheus's own tools, and a Prometheus that scrapes a bus."""

import json
import re
import shutil
import subprocess
import unittest
import urllib.error
import urllib.parse
import urllib.request

import checkout
from web import HOST, Web
from support.cluster import ClusterBus
from support.harness import Bus, TestCase, temporary_folder
from support.origin import Origin
from support.processes import Program, eventually
from support.tools import tool

EXAMPLES = checkout.ROOT / "examples" / "monitoring"


def promtool(*arguments, input=None):
    """Returns exit code and output of promtool."""
    done = subprocess.run([tool("promtool", "prometheus"), *arguments], input=input, cwd=EXAMPLES, text=True, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


class MonitoringTests(TestCase):
    def test_the_examples_are_valid(self):
        for arguments in [("check", "config", "prometheus.yml"), ("check", "rules", "--lint-fatal", "alerts.yml"),
                          ("test", "rules", "alerts_test.yml")]:
            status, output = promtool(*arguments)
            self.assertEqual(status, 0, output)

    def metrics(self, web):
        return eventually(lambda: "earshot_up 1" in (text := web.get("/metrics")[2]) and text, "the broker answers")

    def test_the_metrics_are_clean_and_cover_the_examples(self):
        with Origin() as origin, Bus() as bus, Web(bus) as web, bus.client() as client:
            client.fetch("h", 1, f"{origin.url}/bytes/10")
            client.fetch("h", 2, f"{origin.url}/status/404")
            client.terminal()
            client.terminal()
            text = self.metrics(web)
        with ClusterBus() as node, Web(node) as web:
            of_node = self.metrics(web)
        for metrics in (text, of_node):
            self.assertEqual(promtool("check", "metrics", input=metrics), (0, ""))
        text += of_node
        names = set(re.findall(r"^([a-z_]+)[{ ]", text, re.MULTILINE)) | set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
        dashboard = json.loads((EXAMPLES / "grafana-dashboard.json").read_text())
        expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        used = set(re.findall(r"earshot_[a-z_]+", "\n".join(expressions) + (EXAMPLES / "alerts.yml").read_text()))
        self.assertGreater(len(used), 15)
        self.assertEqual(used - names, set())

    def test_a_prometheus_scrapes_it(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        with Origin() as origin, Bus() as bus, Web(bus) as web, bus.client() as client:
            configuration = (EXAMPLES / "prometheus.yml").read_text()
            configuration = configuration.replace("127.0.0.1:5766", f"{HOST}:{web.port}").replace("5s", "1s")
            (folder / "prometheus.yml").write_text(configuration)
            shutil.copy(EXAMPLES / "alerts.yml", folder)
            prometheus = Program([tool("prometheus", "prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data",
                                  f"--web.listen-address={HOST}:0"], None, folder)
            self.addCleanup(prometheus.kill)
            line = prometheus.await_line("Listening on", timeout=60)
            port = re.search(r"address=\S+?:(\d+)", line)[1]

            def evaluate(query):
                url = f"http://{HOST}:{port}/api/v1/query?query={urllib.parse.quote(query)}"
                try:
                    with urllib.request.urlopen(url, timeout=60) as response:
                        result = json.load(response)["data"]["result"]
                except urllib.error.HTTPError as error:
                    # It listens before it is ready.
                    self.assertEqual(error.code, 503)
                    return []
                return [float(row["value"][1]) for row in result]

            client.fetch("h", 1, f"{origin.url}/bytes/10")
            client.terminal()
            eventually(lambda: evaluate('up{job="earshot"}') == [1], "Prometheus has scraped", 60)
            eventually(lambda: evaluate('earshot_requests_total{state="answered"}') == [1], "it has the answer", 60)
            eventually(lambda: len(evaluate("histogram_quantile(0.9, earshot_request_seconds_bucket)")) == 1, "it has a quantile")
            prometheus.signal(15)
            prometheus.wait(60)


if __name__ == "__main__":
    unittest.main()
