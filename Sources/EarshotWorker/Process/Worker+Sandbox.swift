internal import EarshotLoop
internal import EarshotWire
internal import Logging

/// The restriction of this process after its start, when the spool is known and no job has come.
extension Worker {
    /// Public files that libcurl, c-ares, OpenSSL and the log read at any time. Folders and not files, where a new version
    /// replaces a file: a rule does not concern later files.
    private static let publicFiles = [
        "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/resolv.conf", "/run/systemd/resolve",
        "/etc/localtime", "/usr/share/zoneinfo",
        "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
        "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/etc/ca-certificates/extracted",
    ]

    /// Restricts this process to the spool and public files. Some parts may be missing in an old kernel.
    func enterSandbox(spool: String) {
        var sandbox = Sandbox()
        sandbox.allow(.write, spool)
        for path in Self.publicFiles { sandbox.allow(.read, path) }
        let report = sandbox.enter()
        var parts = SandboxParts()
        parts.landlock = report.landlock
        parts.filtersCalls = report.hasFilter
        parts.error = report.obstacle
        self.sandbox = parts
        logger.debug("entered the sandbox", metadata: ["parts": "\(parts)"])
    }

    /// Ends this worker if it cannot open a spool that replaced the one in its sandbox. The supervisor starts another worker.
    func endOutsideSpool(_ error: SystemError) {
        guard sandbox?.landlock != nil, error.isDenied else { return }
        logger.notice("another folder replaced the spool: the worker ends, so that a new one can use it")
        stop()
    }
}
