import Foundation

@testable import TestPeers

/// HTTPS origin: OpenSSL's test server with a self-signed certificate for `localhost`.
final class TLSOrigin {
    let port: UInt16
    /// Path of the certificate.
    let certificate: String
    /// Path of its private key.
    let key: String
    private let folder: URL
    private let server: Process
    private let output = Pipe()

    /// - Parameter arguments: Additional arguments of `openssl s_server`.
    init(arguments: [String] = []) throws {
        folder = FileManager.default.temporaryDirectory.appending(path: "earshot-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        let (certificate, key) = (folder.appending(path: "cert.pem").path, folder.appending(path: "key.pem").path)
        self.certificate = certificate
        self.key = key
        let maker = Self.openssl([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
            "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
        ])
        maker.standardError = FileHandle.nullDevice
        try maker.run()
        maker.waitUntilExit()
        server = Self.openssl(
            ["s_server", "-accept", "127.0.0.1:0", "-cert", certificate, "-key", key, "-www"] + arguments)
        server.standardInput = FileHandle.nullDevice
        server.standardOutput = output
        server.standardError = FileHandle.nullDevice
        try server.run()
        // The server prints `ACCEPT 127.0.0.1:PORT` once it listens.
        var text = ""
        var found: UInt16?
        while found == nil {
            let data = output.fileHandleForReading.availableData
            guard !data.isEmpty else { throw Loopback.Failure(call: "openssl", number: 0) }
            text += String(decoding: data, as: UTF8.self)
            found = text.split(separator: "\n").dropLast(text.hasSuffix("\n") ? 0 : 1)
                .first { $0.hasPrefix("ACCEPT ") }?.split(separator: ":").last.flatMap { UInt16($0) }
        }
        port = found ?? 0
    }

    deinit {
        // SIGTERM would have no effect: the threads that run tests block it, and a child inherits that.
        kill(server.processIdentifier, SIGKILL)
        server.waitUntilExit()
        try? FileManager.default.removeItem(at: folder)
    }

    /// Returns its private key, encrypted with a passphrase.
    func encryptedKey() throws -> [UInt8] {
        let encrypted = folder.appending(path: "encrypted.pem")
        let maker = Self.openssl([
            "rsa", "-in", key, "-aes128", "-passout", "pass:secret", "-out", encrypted.path,
        ])
        maker.standardError = FileHandle.nullDevice
        try maker.run()
        maker.waitUntilExit()
        return Array(try Data(contentsOf: encrypted))
    }

    private static func openssl(_ arguments: [String]) -> Process {
        let process = Process()
        process.executableURL = URL(filePath: "/usr/bin/openssl")
        process.arguments = arguments
        return process
    }
}
