internal import EarshotLoop
internal import Glibc
internal import ZeroMQ

/// Key pair of a client for buses on a network.
///
/// `earshot key new NAME` writes it into a file, and the bus must have authorized its public key.
public struct BusKey: Hashable, Sendable, CustomStringConvertible {
    /// Maximum length of a key file in bytes. A file with three lines has 200.
    private static let maximumFileBytes = 16_384

    /// Name of the key, for messages.
    public let name: String
    let publicKey: String
    let secretKey: String

    /// Reads a key file: TOML with `name`, `public-key` and `secret-key`.
    ///
    /// - Parameter path: path of a file that only its owner can read.
    /// - Throws: `ClientError` if the file is unreadable, accessible to other users, or has no key pair.
    public init(file path: String) throws(ClientError) {
        let values = try Self.quotedValues(in: Self.readFile(path, isSecret: true))
        guard let publicKey = values["public-key"], let secretKey = values["secret-key"],
            CurveClient.isKey(publicKey), CurveClient.isKey(secretKey)
        else {
            throw ClientError(
                .key,
                "the key file \(path) is invalid: it needs public-key and secret-key with 40 characters each; create one with `earshot key new`"
            )
        }
        name = values["name"] ?? path
        self.publicKey = publicKey
        self.secretKey = secretKey
    }

    /// - Parameters:
    ///   - name: name of the key, for messages.
    ///   - publicKey: 40 characters of Z85, as `secretKey`.
    /// - Throws: `ClientError` if one of the keys does not have this form.
    package init(name: String, publicKey: String, secretKey: String) throws(ClientError) {
        guard CurveClient.isKey(publicKey), CurveClient.isKey(secretKey) else {
            throw ClientError(.key, "the key \(name) is invalid: both parts need 40 characters")
        }
        self.name = name
        self.publicKey = publicKey
        self.secretKey = secretKey
    }

    /// The name, without the keys.
    public var description: String { name }

    /// Returns a server key.
    ///
    /// - Parameter text: the key, or the path of its file.
    static func readServerKey(_ text: String) throws(ClientError) -> String {
        // Keys may contain slashes, so an existing file decides.
        if CurveClient.isKey(text), unsafe access(ByteText.cString(text), F_OK) != 0 { return text }
        guard unsafe access(ByteText.cString(text), F_OK) == 0 else {
            throw ClientError(
                .key, "the server key is neither a key of 40 characters nor a file; `earshot key show` prints it")
        }
        let content = try readFile(text, isSecret: false)
        // The output of `earshot key show`, or a key file.
        let line = content.prefix { !$0.isWhitespace }
        if CurveClient.isKey(String(line)), content.dropFirst(line.count).allSatisfy(\.isWhitespace) {
            return String(line)
        }
        guard let key = quotedValues(in: content)["public-key"], CurveClient.isKey(key) else {
            throw ClientError(.key, "the file \(text) has no public-key of 40 characters; give the server's public key")
        }
        return key
    }

    /// Returns the text of a file.
    private static func readFile(_ path: String, isSecret: Bool) throws(ClientError) -> String {
        let descriptor = unsafe open(ByteText.cString(path), O_RDONLY | O_CLOEXEC | O_NOCTTY)
        guard descriptor >= 0 else { throw unreadableFileError(path, errno: errno) }
        defer { close(descriptor) }
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0 else { throw unreadableFileError(path, errno: errno) }
        guard !isSecret || status.st_mode & 0o077 == 0 else {
            throw ClientError(
                .key, "the key file \(path) is accessible to other users; run `chmod 600` on it, or create a new key")
        }
        var bytes = [UInt8](repeating: 0, count: maximumFileBytes)
        var count = 0
        while count < bytes.count {
            let read = unsafe bytes.withUnsafeMutableBytes { buffer in
                unsafe Glibc.read(descriptor, buffer.baseAddress?.advanced(by: count), buffer.count - count)
            }
            if read < 0, errno == EINTR { continue }
            guard read >= 0 else { throw unreadableFileError(path, errno: errno) }
            if read == 0 { break }
            count += read
        }
        return String(decoding: bytes[..<count], as: UTF8.self)
    }

    private static func unreadableFileError(_ path: String, errno number: Int32) -> ClientError {
        ClientError(.key, unsafe "cannot read the key file \(path): \(String(cString: strerror(number)))")
    }

    /// Returns the values of lines `name = "text"`. Text without escapes is enough for keys and names.
    static func quotedValues(in text: String) -> [String: String] {
        var pairs: [String: String] = [:]
        for line in text.split(whereSeparator: \.isNewline) {
            guard let equals = line.firstIndex(of: "=") else { continue }
            let value = line[line.index(after: equals)...].drop(while: \.isWhitespace)
            guard let quote = value.first, quote == "\"" || quote == "'" else { continue }
            let rest = value.dropFirst()
            guard let end = rest.firstIndex(of: quote) else { continue }
            let name = line[..<equals].drop(while: \.isWhitespace)
            pairs[String(name.prefix { !$0.isWhitespace })] = String(rest[..<end])
        }
        return pairs
    }
}
