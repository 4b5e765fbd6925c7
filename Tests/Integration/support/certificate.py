"""Self-signed certificates, created on demand."""

import pathlib
import subprocess


def self_signed(folder, *names):
    """Creates a certificate for 127.0.0.1 and `names`, such as `DNS:localhost`, and its key in `folder`. Returns both paths."""
    certificate, key = pathlib.Path(folder) / "certificate.pem", pathlib.Path(folder) / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=" + ",".join(["IP:127.0.0.1", *names]), "-keyout", key, "-out", certificate],
        check=True, capture_output=True)
    return certificate, key
