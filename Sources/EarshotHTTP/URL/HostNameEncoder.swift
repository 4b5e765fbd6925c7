internal import EarshotWire

/// Conversion of internationalized host names to ASCII by UTS 46, as `xn--` labels.
///
/// The Unicode tables belong to a C library, which this module does not link, so the shell supplies the function. Its
/// result depends only on the name, and is validated like any host of a URL.
public struct HostNameEncoder: Sendable {
    /// Reason why a name has no ASCII form.
    public struct Failure: Error, Hashable, Sendable {
        /// Phrase for the user that contains no part of the name.
        public let reason: String

        public init(_ reason: String) { self.reason = reason }
    }

    private let function: @Sendable (String) throws(Failure) -> String

    /// - Parameter function: Called on any thread with a name that is not ASCII.
    public init(_ function: @escaping @Sendable (String) throws(Failure) -> String) { self.function = function }

    /// Returns the URL in `bytes` with its http or https host converted to ASCII; nil if that host is already ASCII.
    ///
    /// Percent-escapes of bytes above 7F in the host are decoded first, as the URL standard does.
    func encodingHost(of bytes: Span<UInt8>) throws(FetchURL.ParseError) -> [UInt8]? {
        guard let range = URLParts.httpHost(of: bytes) else { return nil }
        let host = bytes.extracting(range)
        var name: [UInt8] = []
        var index = 0
        while index < host.count {
            if let escaped = Self.escapedByte(host, index) {
                name.append(escaped)
                index += 3
            } else {
                name.append(host[index])
                index += 1
            }
        }
        guard name.contains(where: { $0 >= 0x80 }) else { return nil }
        guard let text = String(validating: name, as: UTF8.self) else { throw .invalidHostName("it is not UTF-8") }
        let ascii: String
        do throws(Failure) { ascii = try function(text) } catch { throw .invalidHostName(error.reason) }
        // A mapped character may be a delimiter of URLs, such as a solidus.
        guard ascii.utf8.allSatisfy({ ByteSet.host.contains($0) || $0 == UInt8(ascii: ".") }) else {
            throw .invalidHostName("string contains a disallowed character")
        }
        var encoded: [UInt8] = []
        encoded.reserveCapacity(bytes.count + ascii.utf8.count)
        for index in 0..<range.lowerBound { encoded.append(bytes[index]) }
        encoded += ascii.utf8
        for index in range.upperBound..<bytes.count { encoded.append(bytes[index]) }
        return encoded
    }

    /// Decodes the percent-escape of a byte above 7F at `index`; nil for anything else.
    private static func escapedByte(_ bytes: Span<UInt8>, _ index: Int) -> UInt8? {
        guard index + 2 < bytes.count, bytes[index] == UInt8(ascii: "%"), let high = bytes[index + 1].hexValue,
            let low = bytes[index + 2].hexValue, high >= 8
        else { return nil }
        return high << 4 | low
    }
}
