/// File with the description of a partial body, beside the body or, while that grows, apart from it.
///
/// In the form of a message: fields, and the fields of the response. It contains no credentials of either side.
public struct PartHead: Equatable, Sendable {
    /// Version of the form. A head of another version is not read.
    private static let version = "1"
    /// Maximum length of a head in bytes.
    public static let maximumBytes = WireLimits.headBytes

    /// Response fields that are not stored: they are, or may contain, credentials.
    private static let secretFieldNames: Set = ["set-cookie", "set-cookie2", "authentication-info", "www-authenticate"]

    public var part: PartDescription
    /// Names of the part: digests of its keys, each of 64 hexadecimal digits.
    public var keyDigests: [String]
    /// Principal that the part is charged to; empty for the administrator.
    public var owner: String
    /// Absolute path of the body while an attempt of a broker has it.
    public var bodyPath: String
    /// Device of the body.
    public var device: UInt64
    /// Inode number of the body.
    public var inode: UInt64
    /// Boot of the machine in which all bytes of the body count.
    public var bootID: String

    public init(
        _ part: PartDescription, keyDigests: [String], owner: String, bodyPath: String, device: UInt64 = 0,
        inode: UInt64 = 0, bootID: String
    ) {
        self.part = part
        self.part.httpFields = Self.withoutSecrets(part.httpFields)
        self.keyDigests = keyDigests
        self.owner = owner
        self.bodyPath = bodyPath
        self.device = device
        self.inode = inode
        self.bootID = bootID
    }

    /// Decodes a file. Nil for a head of another version, or one that is damaged.
    public init?(_ bytes: [UInt8]) {
        guard let reader = try? HeadReader(bytes, limit: Self.maximumBytes), reader.verb == "PART",
            reader.operands == [Self.version]
        else { return nil }
        let fields = reader.fields
        let names = fields["names"]?.string.split(separator: " ").map(String.init) ?? []
        let file = fields["file"]?.string.split(separator: " ").compactMap { UInt64($0) } ?? []
        guard !names.isEmpty, names.allSatisfy({ Ascii.isSHA256(Array($0.utf8)[...]) }), file.count == 2,
            let path = fields["path"]?.string, path.hasPrefix("/"), let boot = fields["boot"]?.string,
            let validator = fields["validator"]?.string,
            let generation = fields["generation"].flatMap({ AttemptID($0.string) })
        else { return nil }
        var total: Int?
        if let text = fields["total"] {
            guard let number = Int(text.string), number > 0 else { return nil }
            total = number
        }
        var checkpoint: Checkpoint?
        if let text = fields["checkpoint"] {
            guard let read = Checkpoint(text.string) else { return nil }
            checkpoint = read
        }
        part = PartDescription(
            validator: validator, totalBytes: total, httpFields: reader.httpFields, generation: generation,
            checkpoint: checkpoint, isKnownToClient: fields["known"] != nil)
        self.keyDigests = names
        owner = fields["owner"]?.string ?? ""
        self.bodyPath = path
        (device, inode) = (file[0], file[1])
        self.bootID = boot
    }

    /// Returns the content of the file; nil if it would not be read again, as with a path that contains a line end.
    public func encoded() -> [UInt8]? {
        var writer = HeadWriter("PART")
        writer.writeOperand(Self.version)
        writer.writeField("names", keyDigests.joined(separator: " "))
        writer.writeField("path", bodyPath)
        writer.writeField("file", "\(device) \(inode)")
        writer.writeField("boot", bootID)
        writer.writeField("validator", part.validator)
        writer.writeField("total", part.totalBytes)
        writer.writeField("generation", part.generation.description)
        writer.writeField("checkpoint", part.checkpoint?.description)
        writer.writeField("known", part.isKnownToClient ? "yes" : nil)
        writer.writeField("owner", owner.isEmpty ? nil : owner)
        let bytes = writer.finished(httpFields: part.httpFields)
        return PartHead(bytes) == self ? bytes : nil
    }

    private static func withoutSecrets(_ lines: [UInt8]) -> [UInt8] {
        Array(
            lines.split(separator: Ascii.lineFeed)
                .filter { line in
                    let name = String(decoding: line.prefix { $0 != Ascii.colon }, as: UTF8.self).lowercased()
                    return !secretFieldNames.contains(name)
                }
                .joined(separator: [Ascii.lineFeed]))
    }
}

/// Everything that the requests of two flights must have in common for one to resume the body of the other.
///
/// The texts contain URLs and credentials, so they are hashed with a secret before they reach a disk.
public struct PartKeys: Equatable, Sendable {
    /// Key of the flight, and one with the first URL of its redirects if there is one.
    public var keyTexts: [String]
    /// Principal that the part is charged to; nil for the administrator.
    public var owner: PrincipalName?

    public init(keyTexts: [String], owner: PrincipalName?) {
        self.keyTexts = keyTexts
        self.owner = owner
    }
}

/// Partial body that outlives its flight, without the number of its bytes.
public struct PartDescription: Equatable, Sendable {
    /// Strong validator in the form of `If-Range`.
    public var validator: String
    /// Length of the whole body in bytes; nil if no server announced it.
    public var totalBytes: Int?
    /// Fields of the 200 response that began the body, separated by LF.
    public var httpFields: [UInt8]
    /// Attempt that received the first byte.
    public var generation: AttemptID
    /// Bytes that are certainly on the disk; nil before the first checkpoint.
    public var checkpoint: Checkpoint?
    /// Whether a client knew the file while it grew, and may still read it.
    public var isKnownToClient: Bool

    public init(
        validator: String, totalBytes: Int?, httpFields: [UInt8], generation: AttemptID, checkpoint: Checkpoint? = nil,
        isKnownToClient: Bool = false
    ) {
        self.validator = validator
        self.totalBytes = totalBytes
        self.httpFields = httpFields
        self.generation = generation
        self.checkpoint = checkpoint
        self.isKnownToClient = isKnownToClient
    }
}

/// Bytes at the start of a growing body that are certainly on the disk, with their hash.
public struct Checkpoint: Equatable, Sendable, CustomStringConvertible {
    /// Number of bytes, at least 1.
    public let byteCount: Int
    /// SHA-256 of these bytes, 64 lower-case hexadecimal digits.
    public let sha256: String

    public init(byteCount: Int, sha256: String) {
        self.byteCount = byteCount
        self.sha256 = sha256
    }

    /// Parses the text on the wire and in files: `LENGTH SHA256`.
    init?(_ text: String) {
        let words = text.split(separator: " ")
        guard words.count == 2, let bytes = Int(words[0]), bytes > 0, Ascii.isSHA256(Array(words[1].utf8)[...]) else {
            return nil
        }
        self.init(byteCount: bytes, sha256: String(words[1]))
    }

    public var description: String { "\(byteCount) \(sha256)" }
}
