internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto

/// Body of a response, as the bus has delivered it.
enum OutputBody {
    case bytes([UInt8])
    /// Path in the spool, expected length in bytes, and whether this program owns the file exclusively.
    case file(String, length: Int, isOwn: Bool)

    /// - Parameter bytes: inline content; empty for a body in a file.
    init(of delivery: DeliveredTerminal, _ bytes: [UInt8]) {
        if let response = delivery.terminal.response, let file = response.bodyFilePath {
            self = .file(file, length: response.bodyByteCount, isOwn: delivery.ownsFile)
        } else {
            self = .bytes(bytes)
        }
    }
}

/// Readable body.
final class BodySource {
    private let body: OutputBody
    private let descriptor: Int32

    init(_ body: OutputBody) throws(OutputFailure) {
        self.body = body
        switch body {
        case .bytes: descriptor = -1
        case .file(let path, let length, _):
            descriptor = BodyFile.open(path)
            guard descriptor >= 0 || ![EMFILE, ENFILE].contains(errno) else {
                throw OutputFailure.systemFailure("open", path)
            }
            var status = stat()
            guard descriptor >= 0, unsafe fstat(descriptor, &status) == 0, status.st_uid == geteuid(),
                status.st_mode & S_IFMT == S_IFREG, Int(status.st_size) == length
            else { throw .sourceLost }
        }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Length in bytes.
    var length: Int {
        switch body {
        case .bytes(let bytes): bytes.count
        case .file(_, let length, _): length
        }
    }

    /// Whether this program owns the file exclusively.
    var isExclusivelyOwned: Bool { if case .file(_, _, isOwn: true) = body { true } else { false } }

    /// First bytes of the body.
    var firstBytes: [UInt8] {
        switch body {
        case .bytes(let bytes): Array(bytes.prefix(BinaryBody.examinedByteCount))
        case .file: BinaryBody.firstBytes(of: descriptor, at: 0)
        }
    }

    /// Moves an exclusively owned file to its output path.
    ///
    /// - Returns: false if the file must be copied.
    func moveFile(
        by mover: FileMover?, to name: String, in folder: Int32, mode: mode_t? = nil, modified: Int64?
    ) -> Bool {
        guard let mover, case .file(let path, _, isOwn: true) = body else { return false }
        if let modified { FileTime.setModificationTime(ofDescriptor: descriptor, seconds: modified) }
        return mover.move(path, open: descriptor, to: name, in: folder, mode: mode)
    }

    /// Returns the SHA-256 of a file that the body continues, together with the body. Nil if one cannot be read.
    func combinedDigest(after file: Int32, length: Int) -> String? {
        var hash = SHA256()
        guard hash.add(file, length: length) else { return nil }
        switch body {
        case .bytes(let bytes): hash.update(bytes.span)
        case .file(_, let length, _): guard hash.add(descriptor, length: length) else { return nil }
        }
        return hash.finalize().hex
    }

    func write(to output: Output, _ path: String?) throws(OutputFailure) {
        let outcome =
            switch body {
            case .bytes(let bytes): output.write(bytes)
            case .file(_, let length, _): output.copy(from: descriptor, length: length)
            }
        try OutputFailure.throwIfFailed(outcome, path)
    }
}

/// Detection of bodies that are no text, for a terminal.
enum BinaryBody {
    /// Number of bytes that are examined.
    static let examinedByteCount = 2_000

    /// Whether bytes contain a control character that is unusual in text. Backspace, bell and escape occur in text for
    /// terminals.
    static func isBinary(_ bytes: [UInt8]) -> Bool {
        bytes.prefix(examinedByteCount).contains { $0 < 0x20 && ![7, 8, 9, 10, 12, 13, 27].contains($0) }
    }

    /// Returns the first bytes of a file from an offset; empty if it cannot be read.
    static func firstBytes(of descriptor: Int32, at offset: Int) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: examinedByteCount)
        let count = unsafe pread(descriptor, &bytes, bytes.count, off_t(offset))
        return Array(bytes.prefix(max(0, count)))
    }

    static let terminalRefusal = OutputFailure.cannotWrite(
        "the body is binary, and standard output is a terminal; give -o FILE, or -o - to write it to the terminal")
}
