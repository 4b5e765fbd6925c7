"""Certificates, created on demand."""

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


def dated(folder, start, end):
    """Creates a self-signed certificate for 127.0.0.1 that is valid from `start` to `end`, such as `20200101000000Z`."""
    folder = pathlib.Path(folder)
    (folder / "index").touch()
    (folder / "configuration").write_text(
        f"[ca]\ndefault_ca = own\n[own]\ndatabase = {folder}/index\nnew_certs_dir = {folder}\nrand_serial = yes\n"
        "default_md = sha256\npolicy = any\nx509_extensions = names\n[any]\ncommonName = supplied\n"
        "[names]\nsubjectAltName = IP:127.0.0.1\nbasicConstraints = CA:TRUE\n")
    certificate, key, request = folder / "certificate.pem", folder / "key.pem", folder / "request.pem"
    _openssl("req", "-new", *NEW_KEY, "-subj", "/CN=localhost", "-keyout", key, "-out", request)
    _openssl("ca", "-batch", "-selfsign", "-notext", "-config", folder / "configuration", "-keyfile", key, "-in", request,
             "-startdate", start, "-enddate", end, "-out", certificate)
    return certificate, key


def signed(folder):
    """Creates a certificate for 127.0.0.1 that an own authority has signed. Returns its path, and those of key and authority."""
    folder = pathlib.Path(folder)
    authority, authority_key = folder / "authority.pem", folder / "authority-key.pem"
    certificate, key, request = folder / "certificate.pem", folder / "key.pem", folder / "request.pem"
    _openssl("req", "-x509", *NEW_KEY, "-days", "2", "-subj", "/CN=Authority", "-keyout", authority_key, "-out", authority)
    _openssl("req", "-new", *NEW_KEY, "-subj", "/CN=localhost", "-keyout", key, "-out", request)
    (folder / "names").write_text("subjectAltName = IP:127.0.0.1\n")
    _openssl("x509", "-req", "-in", request, "-CA", authority, "-CAkey", authority_key, "-days", "2",
             "-extfile", folder / "names", "-out", certificate)
    return certificate, key, authority


NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def _openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
